"""Models and data sets."""
