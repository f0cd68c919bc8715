"""Logits processors and grammars of a sequence, on the host's side."""
