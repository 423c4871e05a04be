"""Installs NVIDIA's driver, CUDA and container toolkit."""
