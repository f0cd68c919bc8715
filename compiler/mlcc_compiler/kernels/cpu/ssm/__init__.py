"""Operators that keep a state a sequence, on the CPU."""
