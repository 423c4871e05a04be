"""One profile on many hosts over SSH. Nothing outside of this package knows SSH."""
