"""The head of an encoder, as plain data: pooling, further layers, and post-processing.

The files are read by `checkpoint/sentence_transformers.py`.
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
    """`labels` 0 = rows are embeddings; 1 = a score of a pair of texts, more = classes."""

    pooling: str = "mean"
    dense: tuple[DenseShape, ...] = ()
    normalize: bool = True
    labels: int = 0
    activation: str = "none"
    """Activation of a score or of classes: none, sigmoid or softmax."""
    label_names: tuple[str, ...] = ()
    """Names of the classes."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Prefix of a text, by purpose."""
    default_prompt: str = ""
    """The name of one of them, "" = none."""
    max_length: int | None = None
    """Maximum tokens, if the files say so."""
    answers: tuple[str, ...] = ()
    """Two tokens, no and yes: a language model's score is the difference of their logits
    (`weights/encoder.py` makes one row of its head of both)."""
    template: str = ""
    """The prompt of such a model, with {query} and {document}."""
    notes: tuple[str, ...] = ()
    """Messages for the user about how it was determined."""
    image_rows: int = 0
    """Rows of an image, of a vision tower; 0 = an encoder of texts, with one row for each."""
