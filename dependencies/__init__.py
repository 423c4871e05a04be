"""What the host must have: one file an installer."""
