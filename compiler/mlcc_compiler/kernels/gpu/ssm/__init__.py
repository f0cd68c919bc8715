"""Operators with a recurrent state per sequence, on a GPU."""
