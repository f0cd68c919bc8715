"""Audio towers of checkpoints that hear: one file a family."""
