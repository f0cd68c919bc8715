"""GGUF, llama.cpp's file of a whole model: header, tensors, config, tokenizer, as a checkpoint."""
