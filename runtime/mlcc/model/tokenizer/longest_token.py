"""The largest number of characters that one token can represent, if a tokenizer has such a bound.

A text with more characters than a full context of tokens can represent is refused without encoding
it: encoding 4 MB takes seconds and a gigabyte. The bound is exact in one direction: a refused text
does not fit. A tokenizer that may drop text, or represent any run of it by one token, has no bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlcc.engine.text.tokenizer import GPT2_BYTES

_COMPOSED = 4
"""Most characters that Unicode's normal forms compose into one (U+1F82)."""
_KEEPS_LENGTH = {"ByteLevel", "Lowercase", "Prepend"}
_COMPOSES = {"NFC", "NFD", "NFKC", "NFKD"}
_SPLITS = {"ByteLevel", "Metaspace", "Digits", "UnicodeScripts"}
_OF_MODEL = ("byte_fallback", "unk_token", "fuse_unk")
_KEEPING_SPLITS = {"Split", "Punctuation"}


def longest_text(tokenizer: Any) -> int | None:
    """Characters per token of a `tokenizers.Tokenizer`; None if there is no bound."""
    model = tokenizer.model
    tree = {
        "normalizer": _state(tokenizer.normalizer),
        "pre_tokenizer": _state(tokenizer.pre_tokenizer),
        "added_tokens": [
            {"lstrip": token.lstrip, "rstrip": token.rstrip}
            for token in tokenizer.get_added_tokens_decoder().values()
        ],
        "model": {
            "type": type(model).__name__,
            **{
                name: getattr(model, name, None)
                for name in ("byte_fallback", "unk_token", "fuse_unk")
            },
        },
    }
    return longest_of(tree, tokenizer.get_vocab(with_added_tokens=True))


def longest_of(tree: Mapping[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    """The same of a tokenizer.json. vocabulary: with the added tokens."""
    shrinks = max(map(_shrinks, _steps(tree.get("normalizer"))), default=1)
    steps = _steps(tree.get("pre_tokenizer"))
    if shrinks == 0 or not all(map(_keeps_text, steps)):
        return None
    if any(t.get("lstrip") or t.get("rstrip") for t in tree.get("added_tokens") or []):
        return None  # they absorb any white space around them
    if not _knows_all(tree["model"], vocabulary, any(s["type"] == "ByteLevel" for s in steps)):
        return None
    return shrinks * max(map(len, vocabulary), default=1)


def _state(part: Any) -> dict[str, Any] | None:
    return None if part is None else dict(json.loads(part.__getstate__()))


def _steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer as a flat list."""
    return [] if part is None else _flat(part)


def _flat(step: dict[str, Any]) -> list[dict[str, Any]]:
    if step["type"] != "Sequence":
        return [step]
    inner = step.get("normalizers") or step.get("pretokenizers") or []
    return [leaf for one in inner for leaf in _flat(one)]


def _shrinks(step: dict[str, Any]) -> int:
    """Most characters that a normalizer turns into one; 0 = no bound."""
    if step["type"] in _COMPOSES:
        return _COMPOSED
    if step["type"] == "Replace":
        wanted = step.get("pattern", {}).get("String", "")
        return 1 if 0 < len(wanted) <= len(step.get("content", "")) else 0
    return 1 if step["type"] in _KEEPS_LENGTH else 0


def _keeps_text(step: dict[str, Any]) -> bool:
    if step["type"] in _KEEPING_SPLITS:
        return bool(step.get("behavior") != "Removed")
    return step["type"] in _SPLITS


def _knows_all(model: Mapping[str, Any], vocabulary: Mapping[str, int], by_bytes: bool) -> bool:
    """Whether each character of a text is in a token of its own or of a known word."""
    if model.get("type", "BPE" if "merges" in model else "") != "BPE":
        return False
    if by_bytes:
        return all(letter in vocabulary for letter in GPT2_BYTES)
    if model.get("byte_fallback") and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)):
        return True
    return model.get("unk_token") is not None and not model.get("fuse_unk")
