"""Turns the output of a tool into metrics: pure functions, one file per format."""
