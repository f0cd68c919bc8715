"""GGUF, llama.cpp's single-file model format, as a checkpoint: header, tensors, config,
tokenizer.
"""
