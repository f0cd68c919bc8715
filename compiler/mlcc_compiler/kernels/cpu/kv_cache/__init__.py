"""CPU kernels that write keys and values to the pages of the KV cache."""
