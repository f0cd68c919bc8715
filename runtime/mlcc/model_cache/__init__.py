"""Checkpoints that are compiled on the way to an answer, in a child process, and kept."""
