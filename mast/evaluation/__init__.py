"""What encoders are measured by: sets, features, intervals, results; protocols."""
