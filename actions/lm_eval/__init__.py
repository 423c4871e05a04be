"""Measure accuracy on question sets such as MMLU, with EleutherAI's lm-eval."""
