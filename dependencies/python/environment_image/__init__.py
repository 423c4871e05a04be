"""The Dockerfile of a benchmark's image, and the dependency that builds it."""
