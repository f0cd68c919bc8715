"""The reference executor: the model's graph computed by numpy."""
