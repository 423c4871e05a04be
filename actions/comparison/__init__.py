"""Compare variants of a model by quality and speed, from the records of a run."""
