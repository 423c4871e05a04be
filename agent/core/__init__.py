"""Records, errors, names, secrets, progress and time spans: what every other part uses."""
