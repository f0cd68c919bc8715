"""Options of a vision tower's compile, from those of its language model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcc_compiler.options import NOTHING, Options
from mlcc_compiler.quantization.recipes import KEEP

if TYPE_CHECKING:
    from mlcc_compiler.plan import Plan

_FLOATS = ("f32", "bf16", "f16")
_CODES = "q8"
"""A tower is small and reads details, so it has 8 bits also beside a model of fewer."""


def tower_options(options: Options, folder: str) -> Options:
    """Options for the tower, in `folder` below the model. A step is bounded by an image."""
    quant = "bf16" if options.quant == KEEP else options.quant
    return replace(
        options,
        quant=quant if quant in _FLOATS else _CODES,
        head=None,
        rules=(),
        context=None,
        max_batch=None,
        max_step_tokens=None,
        max_rows=None,
        adapters=None,
        dump_ir=options.dump_ir and options.dump_ir / folder,
        kv=None,
        calibrate=NOTHING,
        bits=None,
        reuse_weights=options.reuse_weights and options.reuse_weights / folder,
        static_library=False,
        vision=False,
    )


def describe_tower(plan: Plan) -> str:
    """A line about a tower's plan, for the user."""
    assert plan.encoder_head is not None
    rows, patches = plan.encoder_head.image_rows, plan.limits.context
    weights = f"{plan.parameters:,} weights in {plan.scheme_summary()}"
    if plan.config.architecture in ("audio_input", "gemma3n_audio", "gemma4_audio"):
        per_second = 50 if plan.config.architecture == "audio_input" else 25
        return f"{weights}; {patches // per_second} s of sound become {rows} tokens"
    if plan.encoder is not None and plan.encoder.task == "audio":
        return f"{weights}; a window of {rows // 50} s becomes {rows} rows of keys and values"
    return f"{weights}; {patches} patches of a tile become {rows} tokens"
