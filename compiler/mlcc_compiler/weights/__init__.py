"""Readers of source checkpoints: bytes on disk to named float32 arrays, and what is missing."""
