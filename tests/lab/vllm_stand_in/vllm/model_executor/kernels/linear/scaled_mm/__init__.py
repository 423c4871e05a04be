"""Stands in for ``vllm.model_executor.kernels.linear.scaled_mm``."""
