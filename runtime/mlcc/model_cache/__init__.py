"""Compiles checkpoints on demand in a child process and caches the compiled models."""
