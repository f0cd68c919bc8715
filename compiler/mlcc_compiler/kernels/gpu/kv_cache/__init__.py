"""GPU kernels that write keys, values and hidden states to memory that later steps read."""
