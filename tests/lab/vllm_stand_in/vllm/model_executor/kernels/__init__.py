"""Stands in for ``vllm.model_executor.kernels``."""
