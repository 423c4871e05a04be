"""Questions in SQL over many runs."""
