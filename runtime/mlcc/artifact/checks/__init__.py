"""Checks of a compiled model: numbers, files, this machine, and trust."""
