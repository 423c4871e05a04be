"""Facts about systems: YAML, one file per system."""
