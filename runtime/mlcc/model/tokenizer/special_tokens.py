"""The marks of a dialect (`mlcc.api.parsers.output_format`) as tokens of one tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlcc.model.tokenizer.tokenizer import TextTokenizer

_ENDING = 24
"""Tokens of a prompt's end that may be the mark of reasoning, however it is written."""


def hidden_marks(tokenizer: TextTokenizer, marks: Iterable[str]) -> tuple[tuple[int, str], ...]:
    """Those that are control tokens, which decoding leaves out: their ids, and the marks."""
    found = {}
    for written in marks:
        ids = tokenizer.encode(written, add_special_tokens=False)
        if len(ids) and not tokenizer.decode(ids):  # else it is text, and seen anyway
            found[ids[-1]] = written
    return tuple(found.items())


def grammar_marks(
    tokenizer: TextTokenizer, marks: Iterable[str], hidden: Iterable[tuple[int, str]]
) -> dict[str, int]:
    """Those that grammars take for control tokens: the hidden ones, and for llguidance also added
    ones that are written `<...>`."""
    found = {written: token for token, written in hidden}
    for written in marks:
        ids = tokenizer.encode(written, add_special_tokens=False)
        if len(ids) == 1 and written.startswith("<") and written.endswith(">"):
            found[written] = ids[0]
    return found


def ending_of(tokenizer: TextTokenizer, prompt: Sequence[int], seen: Mapping[int, str]) -> str:
    """How a prompt ends. seen: the control tokens that are told, and how they are written."""
    last = prompt[-_ENDING:]
    return "".join(seen.get(token) or tokenizer.decode([token]) for token in last)
