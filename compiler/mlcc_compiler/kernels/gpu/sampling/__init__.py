"""Sampling a token of each row; the file of the same name is the door."""
