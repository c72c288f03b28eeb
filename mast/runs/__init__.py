"""A run: opened, what the analyses look at, and the memory that it needs."""
