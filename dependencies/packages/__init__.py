"""Package managers, repositories and signing keys."""
