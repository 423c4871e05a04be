"""Docker Engine."""
