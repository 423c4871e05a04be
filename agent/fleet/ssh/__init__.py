"""The way to a host: SSH configuration, host keys, connections. Only here Fabric and paramiko are known."""
