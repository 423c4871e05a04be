"""Records, errors, names, secrets, progress and time spans: the base of all other parts."""
