"""Vision towers and encoders of sound: their configuration and tensors, read from a checkpoint."""
