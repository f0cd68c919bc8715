"""Linear layers of every scheme on the GPU; the entry point is `linear.py`."""
