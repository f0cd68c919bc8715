"""A GGUF file's vocabulary, checked, and the parts of tokenizer.json that all kinds share.

Keys are llama.cpp's `tokenizer.ggml.*`. Knows no kind of tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<eos>", "<|end_of_text|>", "<end_of_utterance>"),
    *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<turn|>", "<|tool_response>"),
    *("<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["),
}
"""Tokens that end an answer in any model, as in llama.cpp: few files name all of theirs by key, and
some converters give them another type than control."""
_OLD_END = "</s>"
"""An end where it is a control token: for Gemma it is a tag of HTML."""
_STARTS = {"<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "<|end_header_id|>"}
"""Their counterparts, which are control tokens too."""
_OF_MESSAGE = "<|end|>"
_PAIRS = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})
"""If both of a pair exist (gpt-oss, Solar Open), `<|end|>` ends a message but not the answer."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, their types and scores, and the keys about their use."""

    metadata: Mapping[str, Value]
    tokens: list[str]
    types: Sequence[int]
    scores: Sequence[float]
    found: tuple[str, ...] = ()
    """Messages about tokens that are doubled or of a wrong type."""

    @classmethod
    def of(cls, metadata: Mapping[str, Value]) -> Vocabulary:
        """Raises CheckpointError if the metadata has no valid vocabulary."""
        tokens = metadata.get(PREFIX + "tokens")
        if not isinstance(tokens, list) or not tokens:
            raise refuse("has no vocabulary (tokenizer.ggml.tokens)")
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
        notes = list(_rename_doubled(tokens))
        count = len(tokens)
        types = list(_numbers(metadata, "token_type", count, NORMAL))
        if wrong := [i for i, text in enumerate(tokens) if _is_mistyped(text, types[i])]:
            for i in wrong:
                types[i] = CONTROL
            notes.append(f"{_some(tokens[i] for i in wrong)} of another type: read as control")
        scores = _numbers(metadata, "scores", count, 0.0)
        return cls(metadata, tokens, types, scores, tuple(notes))

    @property
    def notes(self) -> list[str]:
        """Messages for the user about what is odd in the file."""
        beyond = [f"{PREFIX}{role}_token_id" for role in (*_ROLES, *_ENDS) if self._beyond(role)]
        more = [f"{_some(beyond)} beyond the vocabulary: not used"] if beyond else []
        if self.text("model") == "gpt2" and not self.text("pre"):
            more.append(
                f"the file has no {PREFIX}pre: texts are cut by llama.cpp's default rules, which "
                "may not be the model's; a file of a newer conversion answers better"
            )
        return [f"tokenizer: {note}" for note in (*self.found, *more)]

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
        if value is not None and type(value) is not int:
            raise refuse(f"has {PREFIX}{role}_token_id {str(value)[:40]}, which is no token")
        return None if value in (None, -1) or self._beyond(role) else value

    def _beyond(self, role: str) -> bool:
        """Whether the file names a token that does not exist: no sound text has it, so it is
        reported and not used, as in llama.cpp."""
        value = self.metadata.get(f"{PREFIX}{role}_token_id")
        none = (0xFFFFFFFF, -1)  # how converters write that there is none
        return type(value) is int and value not in none and not 0 <= value < len(self.tokens)

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
            i
            for i, text in enumerate(self.tokens)
            if self.types[i] == CONTROL and (text in _ENDINGS or text == _OLD_END)
        ]
        texts = {self.tokens[i] for i in known}
        if any(texts >= pair for pair in _PAIRS):
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


def _rename_doubled(tokens: list[str]) -> Iterator[str]:
    """Give tokens that occur before other names: a text becomes the first. Yields notes."""
    first: dict[str, int] = {}
    doubled = [i for i, text in enumerate(tokens) if first.setdefault(text, i) != i]
    if doubled:
        yield f"{_some(tokens[i] for i in doubled)} twice in the vocabulary: the first is used"
    for i in doubled:
        tokens[i] = f"[DOUBLED_{i}]"


def _is_mistyped(text: str, kind: int) -> bool:
    return kind in (NORMAL, USER_DEFINED) and (text in _ENDINGS or text in _STARTS)


def _some(texts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(texts))
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return ", ".join(f"{text!r:.60}" for text in listed[:4]) + more


def refuse(what: str) -> CheckpointError:
    """The error for an invalid vocabulary."""
    return CheckpointError(f"the GGUF file {what}; fetch it again")


def _numbers(metadata: Mapping[str, Value], key: str, count: int, default: float) -> Sequence[Any]:
    found = metadata.get(PREFIX + key)
    if found is None:
        return [default] * count
    if not isinstance(found, np.ndarray) or len(found) < count:
        raise refuse(f"has {count} tokens and not as many {PREFIX}{key}")
    found = found[:count]
    if not np.isfinite(found).all():
        raise refuse(f"has {PREFIX}{key} that are no numbers")
    numbers: list[Any] = found.tolist()
    return numbers
