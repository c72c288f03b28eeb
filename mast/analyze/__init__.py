"""Analyses: computed to arrays, then drawn."""
