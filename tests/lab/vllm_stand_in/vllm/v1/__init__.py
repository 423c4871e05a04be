"""Stands in for ``vllm.v1``."""
