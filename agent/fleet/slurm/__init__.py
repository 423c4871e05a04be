"""Hosts that are nodes of a Slurm cluster: a job array starts the agent there, without SSH."""
