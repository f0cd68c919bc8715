"""SentencePiece's unigram model (`tokenizer.ggml.model` "t5"): the most likely segmentation."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import (
    BYTE,
    PREFIX,
    SPACE,
    Vocabulary,
    refuse,
)


def ugm(words: Vocabulary) -> dict[str, Any]:
    """The unigram-specific parts of tokenizer.json."""
    prefix = words.flag("add_space_prefix", True)
    spaces = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": "always" if prefix else "never",
        "split": True,
    }
    return {
        "normalizer": _normalizer(words),
        "pre_tokenizer": spaces,
        "post_processor": words.template(begin=False, end=True),
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": words.id_of("unknown"),
            "byte_fallback": BYTE in words.types,
            "vocab": [list(row) for row in zip(words.tokens, words.scores, strict=True)],
        },
    }


def _normalizer(words: Vocabulary) -> dict[str, Any] | None:
    parts: list[dict[str, Any]] = []
    charsmap = words.metadata.get(PREFIX + "precompiled_charsmap")
    if isinstance(charsmap, np.ndarray) and charsmap.size:
        if charsmap.dtype.itemsize != 1:
            raise refuse(f"has {PREFIX}precompiled_charsmap that is no bytes")
        data = charsmap.tobytes()
        parts.append({"type": "Precompiled", "precompiled_charsmap": b64encode(data).decode()})
    if words.flag("remove_extra_whitespaces", False):
        parts.append({"type": "Strip", "strip_left": True, "strip_right": True})
        parts.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return {"type": "Sequence", "normalizers": parts} if parts else None
