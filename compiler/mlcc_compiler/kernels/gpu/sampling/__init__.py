"""Sampling a token of each row on the GPU; the entry point is `sample.py`."""
