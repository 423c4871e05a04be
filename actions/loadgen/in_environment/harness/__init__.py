"""The process that drives LoadGen; it needs only mlcommons-loadgen and what its backend needs."""
