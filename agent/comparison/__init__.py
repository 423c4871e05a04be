"""Decides whether runs differ: estimates with confidence intervals, and verdicts on them."""
