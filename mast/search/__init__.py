"""Finding images: near-copies, outliers, what is alike in the property that counts."""
