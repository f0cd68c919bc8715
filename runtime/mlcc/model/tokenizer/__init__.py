"""Tokenizers: the model's own, its vocabulary, its index and special tokens."""
