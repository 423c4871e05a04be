"""Monitor the host and its GPUs while actions run."""
