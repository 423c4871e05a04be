"""Changes the operating system: reboot."""
