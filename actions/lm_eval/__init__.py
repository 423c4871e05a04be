"""Accuracy on question sets such as MMLU, by EleutherAI's lm-eval."""
