"""Disks: formatting and mounting."""
