"""Finds the sick hosts in a fleet: rules for metric records, and the baselines for comparison."""
