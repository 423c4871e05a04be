"""Templates of the pages of a fleet run."""
