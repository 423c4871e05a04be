"""The core: reads a profile and carries it out on this host."""

__version__ = "0.1.0"
