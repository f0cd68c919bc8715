"""The tokenizer and the chat template of a checkpoint, as the files that an artifact has."""
