"""See vllm."""
