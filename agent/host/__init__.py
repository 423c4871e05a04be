"""Access to this host: processes, containers."""
