"""Attention over pages; the file of the same name is the door."""
