"""What to run: the profiles that are installed with the agent."""
