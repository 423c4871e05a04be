"""Stands in for ``vllm.v1.core``."""
