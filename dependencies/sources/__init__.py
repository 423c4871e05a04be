"""Downloads and Git repositories."""
