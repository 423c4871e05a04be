"""What is measured beside the actions."""
