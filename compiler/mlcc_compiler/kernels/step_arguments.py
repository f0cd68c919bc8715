"""Signatures of the kernels around a model's layers, for all devices: unpacking a step, and
sampling from logits.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.frame import Argument, activations, f32, i32, page_arguments
from mlcc_compiler.kernels.step import step_argument


def read_step_arguments(layout: StepLayout) -> dict[str, Argument]:
    """(step, last_sampled i32[m]) -> token_ids i32[n], positions i32[n], rows i32[r], and for each
    group with pages slots i32[n]: the plain arrays that layers read.

    Id -1 - i becomes last_sampled[i]. Beyond the step's own counts ids, positions and rows are 0
    and slots -1, so that nothing is read or written out of bounds.
    """
    return {
        "step": step_argument(layout),
        "last_sampled": i32("m"),
        "token_ids": i32("n"),
        "positions": i32("n"),
        "rows": i32("r"),
        **{f"slots_{group}": i32("n") for group in paged_groups(layout)},
    }


def paged_groups(layout: StepLayout) -> list[int]:
    """The cache groups with pages, in order; each has its own slots."""
    return [g for g, group in enumerate(layout.groups) if group.has_pages]


def rotated_arguments(
    device: Any, layout: KvLayout, heads: int, rotary_dim: int, norm: bool
) -> dict[str, Argument]:
    """(qkv, table, norm weights of q and k if any, slots, pages, scales if any, q) of
    `rotate_and_append`."""
    head_dim = layout.head_dim
    weights = {"q_norm": f32(head_dim), "k_norm": f32(head_dim)} if norm else {}
    return {
        "qkv": activations(device, "n", (heads + 2 * layout.kv_heads) * head_dim),
        "table": f32("n", rotary_dim),
        **weights,
        "token_slots": i32("n"),
        **page_arguments(layout),
        "q": activations(device, "n", heads, head_dim),
    }


def sample_arguments(vocab: int, layout: StepLayout) -> dict[str, Argument]:
    """(logits f32[r, vocab], step) -> (tokens i32[r], logprobs f32[r]); sampling parameters are the
    step's.

    Temperature 0 takes the largest logit, the first of equals. logprobs are of the raw logits. NaN
    logits are never chosen; a row of only NaN or -inf gives token 0.
    """
    return {
        "logits": f32("r", vocab),
        "step": step_argument(layout),
        "tokens": i32("r"),
        "logprobs": f32("r"),
    }


def top_logprobs_arguments(vocab: int, layout: StepLayout) -> dict[str, Argument]:
    """(logits f32[r, vocab], step, outputs of `sample`: ids i32[r], logprobs f32[r]) -> (tokens
    i32[r, 20], their logprobs f32[r, 20]), most likely first, of equals the lowest id first.

    -1 and 0 beyond the number a row requests, and where no candidates are left: NaN logits and -inf
    do not count. The sum over the row is `sample`'s: logprobs differ from its logprob as the logits
    do.
    """
    return {
        "logits": f32("r", vocab),
        "step": step_argument(layout),
        "ids": i32("r"),
        "logprobs": f32("r"),
        "tokens": i32("r", MOST_TOP_LOGPROBS),
        "top": f32("r", MOST_TOP_LOGPROBS),
    }
