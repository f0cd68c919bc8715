"""Operators that keep a state a sequence, on a GPU."""
