"""A run: training it, loading it, its starting weights and its cost."""
