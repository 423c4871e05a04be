"""A profile: from text to a validated, resolved value."""
