"""Operators with a recurrent state per sequence, on the CPU."""
