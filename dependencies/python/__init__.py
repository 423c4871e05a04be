"""Provides Python environments of benchmarks."""
