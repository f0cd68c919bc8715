"""A tokenizer with tokens of one letter each, so that an answer's text has its tokens."""

from __future__ import annotations

import json

FIRST = ord("一")


def letters(count: int) -> str:
    """A tokenizer.json with `count` tokens, one letter each."""
    vocab = {chr(FIRST + i): i for i in range(count)}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    return json.dumps({"version": "1.0", "model": model, "decoder": {"type": "Fuse"}})


def tokens_of(text: str) -> list[int]:
    """The token ids of an answer's text."""
    return [ord(letter) - FIRST for letter in text]
