"""Invariances of features: measured on any encoder, chosen at use."""
