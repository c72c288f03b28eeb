"""Evaluation of encoders: labeled sets, protocols, intervals and results."""
