"""How checkpoints hold their vision towers: one file a family."""
