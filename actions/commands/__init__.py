"""Run the commands and servers that a profile names."""
