"""What the documents say of results, a module for each group of studies."""
