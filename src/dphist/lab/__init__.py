"""The laboratory: methods compared on public or made-up data, cell by cell."""
