"""The part of the plan that is specific to encoders (`plan.py` has the rest)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.artifact.schema import EncoderInfo
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.sentence_transformers import dense_folders, encoder_head_of, pair_of
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision.tower import tower_rows
from mlcc_compiler.weights.encoder import with_answers, with_dense

HEARING_TOWERS = ("whisper_audio", "audio_input", "gemma3n_audio", "gemma4_audio")
ENCODER_BATCH = 64
"""Texts per step of an encoder, where the target's row has fewer sequences."""


def as_encoder(
    checkpoint: Checkpoint, reranker: bool, options: Mapping[str, Any]
) -> tuple[Checkpoint, EncoderHead | None]:
    """The checkpoint with an encoder's additional tensors, and its head; None = a generative model.

    options: options that only generative models support, by name; None = not given. Raises
    CheckpointError, and UnsupportedError for unsupported encoders.
    """
    if isinstance(checkpoint, TowerCheckpoint):
        rows = tower_rows(checkpoint.config)
        return checkpoint, EncoderHead("cls", normalize=False, image_rows=rows)
    encoder_head = encoder_head_of(checkpoint, reranker)
    if encoder_head is None:
        return checkpoint, None
    for option, value in options.items():
        if value is not None:
            raise UnsupportedError(f"{option} is for models that write; leave it out of an encoder")
    if encoder_head.answers:
        checkpoint = with_answers(checkpoint, encoder_head.answers)
    elif not encoder_head.labels:
        checkpoint = with_dense(checkpoint, dense_folders(checkpoint))
    return checkpoint, encoder_head


def check_caches(caches: Caches) -> None:
    """Raises UnsupportedError for an encoder with recurrent states."""
    if not all(group.has_pages for group in caches.groups):
        raise UnsupportedError("an encoder with states is not built; those with attention are")


def step_pools(caches: Caches, tokens: int, sequences: int) -> tuple[int, ...]:
    """Pages of each group for one step: an encoder keeps none between steps."""
    return tuple(-(-tokens // group.page_size) + sequences for group in caches.groups)


def encoder_info(model: Encoder, encoder_head: EncoderHead, tokenizer: bytes) -> EncoderInfo:
    """The encoder's record in the manifest. Raises CheckpointError for a scoring model whose
    tokenizer joins no pairs of texts."""
    joins = encoder_head.labels == 1 and not encoder_head.template
    pair, apart = pair_of(tokenizer) if joins else ((), False)
    task = {0: "embed", 1: "score"}.get(encoder_head.labels, "classify")
    sense = "audio" if model.config.architecture in HEARING_TOWERS else "vision"
    return EncoderInfo(
        task=sense if encoder_head.image_rows else task,
        pooling=encoder_head.pooling,
        width=model.width,
        normalize=encoder_head.normalize,
        activation=encoder_head.activation,
        labels=encoder_head.label_names,
        prompts=dict(encoder_head.prompts),
        default_prompt=encoder_head.default_prompt,
        template=encoder_head.template,
        pair=pair,
        segments=model.segments if apart else 1,
    )
