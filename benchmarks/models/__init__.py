"""Checkpoints and GGUF files of published shapes with random weights."""
