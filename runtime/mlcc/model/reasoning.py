"""The reasoning rule of a request: where reasoning ends in tokens, and its token budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mlcc.engine.sampling.reasoning_grammar import Reasoning
from mlcc.model.model import ModelText


def reasoning_rule(
    text: ModelText, prompt: Sequence[int], budget: int | None = None, wanted: bool = True
) -> Reasoning | None:
    """The rule for the reasoning that follows a prompt, of at most `budget` tokens. None = no
    reasoning, or reasoning that is not delimited by tokens (the channels of gpt-oss)."""
    output_format = text.output_format
    if output_format.tags is None or output_format.channels:
        return None
    ending = text.ending(prompt)
    opened = output_format.opened(ending)
    if not opened and (not wanted or output_format.closed(ending)):
        return None
    encode = partial(text.tokenizer.encode, add_special_tokens=False)
    start, end = encode(output_format.tags.open), encode(output_format.tags.close)
    if not opened and len(start) != 1:
        return None  # the first token alone does not mark the start
    alone = len(end) == 1
    hidden = alone and end[0] in dict(text.shown)
    forced = end if hidden else encode(f"\n{output_format.tags.close}")
    return Reasoning(
        -1 if opened else start[0],
        output_format.tags.close,
        end[0] if alone else -1,
        tuple(forced),
        budget,
    )
