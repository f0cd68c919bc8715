"""Tensor parallelism: a model that several processes, its ranks, compute together."""
