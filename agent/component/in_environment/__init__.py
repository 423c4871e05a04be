"""Code that runs in a benchmark's own environment; imports nothing of the agent."""
