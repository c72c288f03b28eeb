"""Search by features: nearest neighbors, copies, outliers."""
