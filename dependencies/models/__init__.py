"""Provides models and data sets."""
