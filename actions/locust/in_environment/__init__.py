"""Code that runs in the benchmark's own environment; imports nothing of the agent."""
