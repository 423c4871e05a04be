"""Fetches models and prepares data sets with the Python of a benchmark's environment."""
