"""The operating system: reboot."""
