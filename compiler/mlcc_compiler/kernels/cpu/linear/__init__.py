"""Linear layers of every scheme on the CPU; the entry point is `linear.py`."""
