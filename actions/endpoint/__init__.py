"""Sweep the load on an OpenAI-compatible endpoint to find the highest load within given limits."""
