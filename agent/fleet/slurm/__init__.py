"""Hosts that are nodes of a Slurm cluster: a job array brings the agent there, and no SSH."""
