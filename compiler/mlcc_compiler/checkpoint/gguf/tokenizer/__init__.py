"""A GGUF file's tokenizer as tokenizer.json, a file for each kind of vocabulary."""
