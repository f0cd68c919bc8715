"""Readers of source checkpoints: folders, repositories, tensor formats, tokenizers."""
