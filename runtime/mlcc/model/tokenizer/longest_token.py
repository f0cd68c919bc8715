"""How many characters of a text one token can stand for at most, if a tokenizer allows to say so.

A text of more characters than a context of tokens can stand for need not be encoded to know that it
is too long: encoding 4 MB takes seconds and a gigabyte. Exact in one direction: what is refused for
its length does not fit. So a tokenizer that may drop text, or let one token stand for any run of
it, has no bound.
"""

from __future__ import annotations

import json
from typing import Any

_COMPOSED = 4
"""Characters that Unicode's normal forms make one of, at most (U+1F82)."""
_KEEPS_LENGTH = {"ByteLevel", "Lowercase", "Prepend"}
_COMPOSES = {"NFC", "NFD", "NFKC", "NFKD"}
_SPLITS = {"ByteLevel", "Metaspace", "Digits", "UnicodeScripts"}
_KEEPING_SPLITS = {"Split", "Punctuation"}


def longest_text(tokenizer: Any) -> int | None:
    """Characters, for a `tokenizers.Tokenizer`; None if there is no bound."""
    shrinks = max((_shrinks(step) for step in _steps(tokenizer.normalizer)), default=1)
    steps = _steps(tokenizer.pre_tokenizer)
    if shrinks == 0 or not all(map(_keeps_text, steps)):
        return None
    if any(t.lstrip or t.rstrip for t in tokenizer.get_added_tokens_decoder().values()):
        return None  # they take any white space beside them
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not _knows_all(tokenizer.model, vocabulary, any(s["type"] == "ByteLevel" for s in steps)):
        return None
    return shrinks * max(map(len, vocabulary), default=1)


def _steps(part: Any) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as a flat list of what it does in turn."""
    return [] if part is None else _flat(json.loads(part.__getstate__()))


def _flat(step: dict[str, Any]) -> list[dict[str, Any]]:
    if step["type"] != "Sequence":
        return [step]
    inner = step.get("normalizers") or step.get("pretokenizers") or []
    return [leaf for one in inner for leaf in _flat(one)]


def _shrinks(step: dict[str, Any]) -> int:
    """Characters that a normalizer makes one of, at most; 0 if any number."""
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


def _knows_all(model: Any, vocabulary: dict[str, int], by_bytes: bool) -> bool:
    """Whether each character of a text is in some token of its own or of a known word."""
    if type(model).__name__ != "BPE":
        return False
    if by_bytes:
        from tokenizers.pre_tokenizers import ByteLevel

        return all(letter in vocabulary for letter in ByteLevel.alphabet())
    if model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)):
        return True
    return model.unk_token is not None and not model.fuse_unk
