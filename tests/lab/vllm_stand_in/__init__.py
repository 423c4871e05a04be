"""A folder for PYTHONPATH: the parts of vLLM that the harness imports, without a model or a GPU."""
