"""A run: opened, its scores, what the analyses look at, and the memory that it needs."""
