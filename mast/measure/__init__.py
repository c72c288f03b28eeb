"""What protocols are made of: labelled sets, features, accuracies, intervals, results."""
