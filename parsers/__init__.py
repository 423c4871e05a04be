"""A tool's output in, metrics out: pure functions, one file a format."""
