"""Finding images among features: nearest, near-copies, outliers."""
