"""Code for the benchmark's own environment; imports nothing from the agent."""
