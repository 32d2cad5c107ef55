"""What is handed in: a page for readers, and a record for registries. All of it follows from releases."""
