"""Tokenizers: the model's own, its vocabulary and special tokens."""
