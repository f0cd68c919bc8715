"""Reads a packed weight in registers: codes, scales, widened floats."""
