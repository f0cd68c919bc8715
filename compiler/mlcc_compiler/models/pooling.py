"""What an encoder is read for, as its checkpoint's files say it: data, from whatever names it.

How tokens become one row (`pooling`), what that row goes through, and what is done with it when it
leaves the device. The files are read by `checkpoint/sentence_transformers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POOLINGS = ("cls", "mean", "last")


@dataclass(frozen=True)
class DenseShape:
    """One Dense module of sentence-transformers: activation(x @ weight.T + bias)."""

    inputs: int
    outputs: int
    bias: bool
    tanh: bool


@dataclass(frozen=True)
class EncoderHead:
    """`labels` 0 = rows are embeddings; 1 = a score of a pair of texts."""

    pooling: str = "mean"
    dense: tuple[DenseShape, ...] = ()
    normalize: bool = True
    labels: int = 0
    activation: str = "none"
    """Of a score: none or sigmoid."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """What goes before a text, by what the text is for."""
    default_prompt: str = ""
    """The name of one of them, "" = none."""
    max_length: int | None = None
    """Tokens, if the files say so."""
    answers: tuple[str, ...] = ()
    """Two tokens, no and yes: a language model's score is how much likelier the second comes next
    (`weights/encoder.py` makes one row of its head of both)."""
    template: str = ""
    """What such a model reads, with {query} and {document}."""
    notes: tuple[str, ...] = ()
    """What a user should know of how it was decided."""
