"""The pages of a fleet run."""
