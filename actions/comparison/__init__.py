"""What variants of a model cost in quality and bring in speed, from the records of a run."""
