"""GPU kernels that compute each row by itself: activations, norms, embeddings, rope."""
