"""Limits of a compiled model: context, sequences, tokens and rows of a step, and its caches."""

from __future__ import annotations

from dataclasses import replace

from mlcc.artifact.kv_format import KV_DTYPES
from mlcc.artifact.schema import Limits
from mlcc.engine.batch.tables import StepLayout
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.driver.encoder_plan import ENCODER_BATCH
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import Traced
from mlcc_compiler.ir.layout import FP8_WORDS, INT8, INT8_WORDS
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.registry import extends_context, max_context
from mlcc_compiler.options import Options
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_targets import Target

CONTEXT = 4096
"""Default context length, if the model supports as much."""
PAGE_SIZE = 16


def context_of(checkpoint: Checkpoint, options: Options, encoder_head: EncoderHead | None) -> int:
    """Context length in tokens. Raises UnsupportedError for more than the model supports."""
    most = max_context(checkpoint.config)
    own = (
        encoder_head.max_length if encoder_head is not None and encoder_head.max_length else CONTEXT
    )
    context = options.context or min(most, own, CONTEXT)
    if context > most and not extends_context(checkpoint.config):
        raise UnsupportedError(
            f"--context {context} is more than the model's {most}; use --context {most}"
        )
    return context


def limits_of(
    options: Options, target: Target, context: int, caches: Caches, encoder_head: EncoderHead | None
) -> Limits:
    """Limits of a step. Raises UnsupportedError where an encoder's text would not fit into one."""
    batch = options.max_batch or target.max_batch
    if encoder_head is not None:  # a text is one step's, and has one row
        batch = options.max_batch or max(ENCODER_BATCH, target.max_batch)
        if options.max_step_tokens is not None and options.max_step_tokens < context:
            raise UnsupportedError(
                f"--max-step-tokens {options.max_step_tokens}: an encoder computes a text of up to "
                f"{context} tokens in one step; use --max-step-tokens {context}, or a smaller "
                "--context"
            )
        most = max(options.max_step_tokens or target.max_step_tokens, context)
        options = replace(options, max_step_tokens=most, max_rows=batch)
        if encoder_head.image_rows:  # an image is a step's, and has many rows
            batch = 1
            options = replace(options, max_step_tokens=context, max_rows=encoder_head.image_rows)
    rows = options.max_rows or batch
    layout = StepLayout.of(
        caches.groups,
        context=context,
        max_tokens=max(options.max_step_tokens or target.max_step_tokens, batch, rows),
        max_sequences=batch,
        max_rows=rows,
        max_copies=batch,
    )
    return Limits(
        context=context,
        max_batch=layout.max_sequences,
        max_step_tokens=layout.max_tokens,
        max_rows=layout.max_rows,
        max_step_pages=layout.max_pages,
        max_copies=layout.max_copies,
    )


def caches_for(traced: Traced, target: Target, options: Options) -> Caches:
    """The model's cache groups. Raises UnsupportedError for a KV dtype that the model or target
    does not support."""
    caches = caches_of(traced.module, PAGE_SIZE, _dtype(target, options))
    if options.kv is not None and not any(group.has_pages for group in caches.groups):
        raise UnsupportedError(
            f"--kv {options.kv}: this model keeps no keys and values; leave --kv out"
        )
    return caches


def _dtype(target: Target, options: Options) -> str:
    """Dtype of caches: float16 where weights are quantized; exact runs keep float32."""
    if options.kv is None:
        return "float16" if target.f16 and options.quant != "f32" else "float32"
    if options.kv == "f16" and not target.f16:
        raise UnsupportedError(
            f"--kv f16: target '{target.name}' has no float16 here; use --kv int8 or --kv f32"
        )
    if options.kv == "fp8":
        if not target.limits.get("fp8_kv"):
            raise UnsupportedError(
                f"--kv fp8: target '{target.name}' has no 8-bit floats; use --kv int8, which has "
                "as many bytes and a smaller error"
            )
        return FP8_WORDS
    if options.kv == "int8":
        return INT8_WORDS if target.generator else INT8
    return KV_DTYPES[options.kv]
