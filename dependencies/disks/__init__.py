"""Formats and mounts disks."""
