"""Templates and style sheet of the report pages."""
