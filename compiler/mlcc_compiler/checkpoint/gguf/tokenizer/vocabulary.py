"""A GGUF file's vocabulary, checked, and the parts of tokenizer.json that all kinds share.

Keys are llama.cpp's `tokenizer.ggml.*`. Knows no kind of tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.gguf.header import Value

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Values of `token_type`, as in SentencePiece."""
SPACE = "\u2581"
"""SentencePiece's character for a space."""

_ROLES = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",  # so spelled in the format
    "cls": "cls_token",
    "mask": "mask_token",
}
_ENDS = ("eos", "eot", "eom")
_ENDINGS = {
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"),
    *("<EOT>", "<|end_of_text|>", "<end_of_utterance>", "<|return|>", "<|call|>"),
}
"""Control tokens that end an answer in any model: few files name all of theirs by key."""
_HARMONY, _OF_MESSAGE = {"<|return|>", "<|call|>"}, "<|end|>"
"""If both exist (gpt-oss), the second ends a message but not the answer."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, their types and scores, and the keys about their use."""

    metadata: Mapping[str, Value]
    tokens: list[str]
    types: Sequence[int]
    scores: Sequence[float]

    @classmethod
    def of(cls, metadata: Mapping[str, Value]) -> Vocabulary:
        """Raises CheckpointError if the metadata has no valid vocabulary."""
        tokens = metadata.get(PREFIX + "tokens")
        if not isinstance(tokens, list) or not tokens:
            raise refuse("has no vocabulary (tokenizer.ggml.tokens)")
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
        if len(set(tokens)) != len(tokens):
            seen: set[str] = set()
            twice = next(t for t in tokens if t in seen or seen.add(t))  # type: ignore[func-returns-value]
            raise refuse(f"has token {twice!r:.60} twice")
        count = len(tokens)
        types = _numbers(metadata, "token_type", count, NORMAL)
        return cls(metadata, tokens, types, _numbers(metadata, "scores", count, 0.0))

    def text(self, key: str, default: str = "") -> str:
        value = self.metadata.get(PREFIX + key, default)
        return value if isinstance(value, str) else default

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(PREFIX + key, default)
        if not isinstance(value, int):
            raise refuse(f"has {PREFIX}{key} that is neither true nor false")
        return bool(value)

    def id_of(self, role: str) -> int | None:
        """The id of "bos", "eos", ...; None if absent. Raises CheckpointError."""
        value = self.metadata.get(f"{PREFIX}{role}_token_id")
        if value is None or (isinstance(value, int) and value in (0xFFFFFFFF, -1)):
            return None
        if type(value) is not int or not 0 <= value < len(self.tokens):
            raise refuse(f"has {PREFIX}{role}_token_id {str(value)[:40]}, which is no token")
        return value

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        """`bos_token`, ... as text."""
        ids = {name: self.id_of(role) for role, name in _ROLES.items()}
        return {name: self.tokens[i] for name, i in ids.items() if i is not None}

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """All ids that end an answer."""
        named = [self.id_of(role) for role in _ENDS]
        known = [
            i for i, text in enumerate(self.tokens) if text in _ENDINGS and self.types[i] == CONTROL
        ]
        if {self.tokens[i] for i in known} >= _HARMONY:
            known = [i for i in known if self.tokens[i] != _OF_MESSAGE]
        return tuple(dict.fromkeys(i for i in [*named, *known] if i is not None))

    def ids(self) -> dict[str, int]:
        """The `vocab` of tokenizer.json."""
        return {text: i for i, text in enumerate(self.tokens)}

    def added(self) -> list[dict[str, Any]]:
        """The `added_tokens`: matched in a text before anything else."""
        special = {i for role in (*_ROLES, *_ENDS) if (i := self.id_of(role)) is not None}
        return [
            {
                "id": i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != USER_DEFINED or i in special,
            }
            for i, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (CONTROL, USER_DEFINED, UNKNOWN) or i in special
        ]

    def template(self, *, begin: bool, end: bool = False) -> dict[str, Any] | None:
        """The `post_processor`: tokens around a text, by default unless the file says otherwise."""
        first = self.id_of("bos") if self.flag("add_bos_token", begin) else None
        last = self.id_of("eos") if self.flag("add_eos_token", end) else None
        return around(self, first, last)


def around(words: Vocabulary, first: int | None, last: int | None) -> dict[str, Any] | None:
    """A template that puts tokens around a text; None without any."""
    if first is None and last is None:
        return None

    def special(i: int | None, kind: int) -> list[dict[str, Any]]:
        return [] if i is None else [{"SpecialToken": {"id": words.tokens[i], "type_id": kind}}]

    def sequence(name: str, kind: int) -> list[dict[str, Any]]:
        text = {"Sequence": {"id": name, "type_id": kind}}
        return [*special(first, kind), text, *special(last, kind)]

    ids = [i for i in dict.fromkeys((first, last)) if i is not None]
    texts = [words.tokens[i] for i in ids]
    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": sequence("A", 0) + sequence("B", 1),
        "special_tokens": {
            text: {"id": text, "ids": [i], "tokens": [text]}
            for text, i in zip(texts, ids, strict=True)
        },
    }


def refuse(what: str) -> CheckpointError:
    """The error for an invalid vocabulary."""
    return CheckpointError(f"the GGUF file {what}; fetch it again")


def _numbers(metadata: Mapping[str, Value], key: str, count: int, default: float) -> Sequence[Any]:
    found = metadata.get(PREFIX + key)
    if found is None:
        return [default] * count
    if not isinstance(found, np.ndarray) or len(found) != count:
        raise refuse(f"has {count} tokens and not as many {PREFIX}{key}")
    if not np.isfinite(found).all():
        raise refuse(f"has {PREFIX}{key} that are no numbers")
    numbers: list[Any] = found.tolist()
    return numbers
