"""Converts a GGUF file's vocabulary to tokenizer.json, a file for each kind."""
