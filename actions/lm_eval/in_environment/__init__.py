"""What another environment's Python runs; nothing here is imported by the agent."""
