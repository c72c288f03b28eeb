"""A run, opened: its encoder or method, its scores, and what the analyses look at."""
