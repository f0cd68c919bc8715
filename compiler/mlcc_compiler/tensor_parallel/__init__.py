"""Tensor parallelism: a model computed by several processes (ranks)."""
