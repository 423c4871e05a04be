"""SSH connections: configuration, host keys, login. Only this package uses Fabric and paramiko."""
