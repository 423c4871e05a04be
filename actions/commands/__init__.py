"""Commands and servers that a profile names."""
