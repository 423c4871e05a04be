"""Python environments of benchmarks."""
