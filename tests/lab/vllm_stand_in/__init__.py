"""A folder for PYTHONPATH: what the harness imports of vLLM, without a model or a GPU."""
