"""Sweeps: what load an OpenAI-compatible endpoint takes within given limits."""
