"""What a release will cost in error, before anything is spent."""
