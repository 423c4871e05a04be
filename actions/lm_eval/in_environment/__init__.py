"""Code for the benchmark's own environment; the agent does not import it."""
