"""Attention over pages; the entry point is `attention.py`."""
