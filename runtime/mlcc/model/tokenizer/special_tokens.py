"""The marks of an output format (`mlcc.api.parsers.output_format`) as tokens of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlcc.model.tokenizer.tokenizer import TextTokenizer

_ENDING = 24
"""Tokens at the end of a prompt that can contain the reasoning mark."""


def hidden_marks(tokenizer: TextTokenizer, marks: Iterable[str]) -> tuple[tuple[int, str], ...]:
    """The marks that are control tokens, which decoding drops: their ids and texts."""
    found = {}
    for written in marks:
        ids = tokenizer.encode(written, add_special_tokens=False)
        if len(ids) and not tokenizer.decode(ids):  # else it is text, and seen anyway
            found[ids[-1]] = written
    return tuple(found.items())


def grammar_marks(
    tokenizer: TextTokenizer, marks: Iterable[str], hidden: Iterable[tuple[int, str]]
) -> dict[str, int]:
    """The marks that grammars treat as control tokens: the hidden ones, and for llguidance also
    added tokens written `<...>`."""
    found = {written: token for token, written in hidden}
    for written in marks:
        ids = tokenizer.encode(written, add_special_tokens=False)
        if len(ids) == 1 and written.startswith("<") and written.endswith(">"):
            found[written] = ids[0]
    return found


def ending_of(tokenizer: TextTokenizer, prompt: Sequence[int], seen: Mapping[int, str]) -> str:
    """The end of a prompt as text. seen: control tokens to include, with their texts."""
    last = prompt[-_ENDING:]
    return "".join(seen.get(token) or tokenizer.decode([token]) for token in last)
