"""The doors to this host: processes, containers."""
