"""Readers of quantized Hugging Face checkpoints, one per format, behind one interface."""
