"""Before you spend: plans, previews, advice, simulation and audits, all on public or made-up counts."""
