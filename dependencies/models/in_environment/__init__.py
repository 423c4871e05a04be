"""Code that runs in a benchmark's own environment; it imports nothing from the agent."""
