"""What a compile decides of an encoder, beside what it decides of every model (`plan.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.artifact.schema import EncoderInfo
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.sentence import dense_folders, pair_of, readout_of
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.pooling import Readout
from mlcc_compiler.weights.encoder import with_answers, with_dense

ENCODER_BATCH = 64
"""Texts of one step of an encoder, where the target's row has fewer sequences."""


def as_encoder(
    checkpoint: Checkpoint, reranker: bool, options: Mapping[str, Any]
) -> tuple[Checkpoint, Readout | None]:
    """The checkpoint with all that is the model's, and what it is read for; None = it writes.

    options: those that only a model that writes obeys, by their names; None = not given. Raises
    CheckpointError, and UnsupportedError for what is not built.
    """
    readout = readout_of(checkpoint, reranker)
    if readout is None:
        return checkpoint, None
    for option, value in options.items():
        if value is not None:
            raise UnsupportedError(f"{option} is for models that write; leave it out of an encoder")
    if readout.answers:
        checkpoint = with_answers(checkpoint, readout.answers)
    elif not readout.labels:
        checkpoint = with_dense(checkpoint, dense_folders(checkpoint))
    return checkpoint, readout


def check_caches(caches: Caches) -> None:
    """Raises UnsupportedError for an encoder that keeps more than pages."""
    if not all(group.has_pages for group in caches.groups):
        raise UnsupportedError("an encoder with states is not built; those with attention are")


def step_pools(caches: Caches, tokens: int, sequences: int) -> tuple[int, ...]:
    """Pages of each group for one step: they are given out anew in the next."""
    return tuple(-(-tokens // group.page_size) + sequences for group in caches.groups)


def encoder_info(model: Encoder, readout: Readout, tokenizer: bytes) -> EncoderInfo:
    """As the manifest has it. Raises CheckpointError for a tokenizer that joins no two texts, of a
    model that scores them."""
    joins = readout.labels and not readout.template
    pair, apart = pair_of(tokenizer) if joins else ((), False)
    return EncoderInfo(
        task="score" if readout.labels else "embed",
        pooling=readout.pooling,
        width=model.width,
        normalize=readout.normalize,
        activation=readout.activation,
        prompts=dict(readout.prompts),
        default_prompt=readout.default_prompt,
        template=readout.template,
        pair=pair,
        segments=model.segments if apart else 1,
    )
