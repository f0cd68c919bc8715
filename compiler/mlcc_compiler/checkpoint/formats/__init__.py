"""Checkpoints of Hugging Face that were quantized before: a reader a format, behind one port."""
