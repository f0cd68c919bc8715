"""Speeds of one GPU, from libraries compiled on another machine."""
