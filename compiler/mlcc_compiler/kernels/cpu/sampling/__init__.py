"""CPU kernels that adjust logits and sample tokens."""
