"""Runs one profile on many hosts, over SSH or through Slurm. Only this package uses SSH."""
