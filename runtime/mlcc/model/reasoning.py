"""How a model thinks before one answer, in tokens: for its engine, from its text side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mlcc.engine.sampling.reasoning_grammar import Reasoning
from mlcc.model.model import ModelText


def reasoning_rule(
    text: ModelText, prompt: Sequence[int], budget: int | None = None, wanted: bool = True
) -> Reasoning | None:
    """The reasoning behind a prompt, of so many tokens at most; None = there is none, or none whose
    ends are tokens (gpt-oss' channels)."""
    dialect = text.dialect
    if dialect.marks is None or dialect.channels:
        return None
    ending = text.ending(prompt)
    opened = dialect.opened(ending)
    if not opened and (not wanted or dialect.closed(ending)):
        return None
    encode = partial(text.tokenizer.encode, add_special_tokens=False)
    start, end = encode(dialect.marks.open), encode(dialect.marks.close)
    if not opened and len(start) != 1:
        return None  # its first token does not tell that it begins
    alone = len(end) == 1
    hidden = alone and end[0] in dict(text.shown)
    forced = end if hidden else encode(f"\n{dialect.marks.close}")
    return Reasoning(
        -1 if opened else start[0],
        dialect.marks.close,
        end[0] if alone else -1,
        tuple(forced),
        budget,
    )
