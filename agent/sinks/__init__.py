"""Where metric records go: one file a sink."""
