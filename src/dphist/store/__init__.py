"""How rows of the ledger reach a disk and come back: nothing here knows of counts, budgets or noise."""
