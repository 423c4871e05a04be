"""Fetch models and prepare data sets, with the Python of a benchmark's environment."""
