"""SentencePiece's unigram model (`tokenizer.ggml.model` "t5"): the most likely segmentation."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import (
    BYTE,
    NORMAL,
    PREFIX,
    SPACE,
    USER_DEFINED,
    Vocabulary,
    refuse,
)

_MANY = 1000
"""Leading spaces that are left out of a decoded text: all."""


def ugm(words: Vocabulary) -> dict[str, Any]:
    """The unigram-specific parts of tokenizer.json."""
    return {
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(words)},
        "pre_tokenizer": _pre_tokenizer(words),
        "post_processor": words.template(begin=False, end=True),
        "decoder": {"type": "Sequence", "decoders": _decoders(words)},
        "model": {
            "type": "Unigram",
            "unk_id": words.id_of("unknown"),
            "byte_fallback": BYTE in words.types,
            "vocab": [list(row) for row in zip(words.tokens, words.scores, strict=True)],
        },
    }


def _normalizers(words: Vocabulary) -> list[dict[str, Any]]:
    """SentencePiece's own steps, in its order: a text that begins with a space gets the prefix too,
    and only spaces are superfluous, no tabs and lines."""
    parts: list[dict[str, Any]] = []
    charsmap = words.metadata.get(PREFIX + "precompiled_charsmap")
    if isinstance(charsmap, np.ndarray) and charsmap.size:
        if charsmap.dtype.itemsize != 1:
            raise refuse(f"has {PREFIX}precompiled_charsmap that is no bytes")
        data = charsmap.tobytes()
        parts.append({"type": "Precompiled", "precompiled_charsmap": b64encode(data).decode()})
    fewer = words.flag("remove_extra_whitespaces", False)
    if fewer:
        parts += [_replace(r"\A +", ""), _replace(" {2,}", " ")]
    parts.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    if words.flag("add_space_prefix", True):
        parts.append({"type": "Prepend", "prepend": SPACE})
    return [*parts, _replace(rf"{SPACE}+\z", "")] if fewer else parts


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _pre_tokenizer(words: Vocabulary) -> dict[str, Any] | None:
    """Cuts where no token can cross, so that the library caches words. The tokens of bytes stand
    for bytes alone, never for a text that reads like them."""
    parts: list[dict[str, Any]] = []
    if BYTE in words.types:
        parts.append(_cut("<(?=0x[0-9A-F]{2}>)", "MergedWithPrevious"))
    texts = zip(words.tokens, words.types, strict=True)
    if not any(SPACE in text[1:] for text, kind in texts if kind in (NORMAL, USER_DEFINED)):
        parts.append(_cut(SPACE, "MergedWithNext"))
    return {"type": "Sequence", "pretokenizers": parts} if parts else None


def _cut(pattern: str, behavior: str) -> dict[str, Any]:
    expression = {"Regex": pattern}
    return {"type": "Split", "pattern": expression, "behavior": behavior, "invert": False}


def _decoders(words: Vocabulary) -> list[dict[str, Any]]:
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    parts: list[dict[str, Any]] = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    fewer = words.flag("remove_extra_whitespaces", False)
    if fewer or words.flag("add_space_prefix", True):
        parts.append({"type": "Strip", "content": " ", "start": _MANY if fewer else 1, "stop": 0})
    return parts
