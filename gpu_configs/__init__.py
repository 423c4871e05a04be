"""What is known of a system: YAML, one a system."""
