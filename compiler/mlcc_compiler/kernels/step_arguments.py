"""What kernels round a model's layers take and give, whatever they run on: those that make plain
arrays of a step, and those that choose tokens from logits."""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.frame import Argument, activations, f32, i32, page_arguments
from mlcc_compiler.kernels.step import step_argument


def read_step_arguments(layout: StepLayout) -> dict[str, Argument]:
    """(step, last_sampled i32[m]) -> token_ids i32[n], positions i32[n], rows i32[r], and of each
    group with pages slots i32[n]: what layers read as plain arrays.

    Id -1 - i becomes last_sampled[i]. Beyond the step's own counts ids, positions and rows are 0
    and slots -1, so that nothing reads or writes where it must not.
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
    """The cache groups with pages, in order: each has its slots."""
    return [g for g, group in enumerate(layout.groups) if group.has_pages]


def rotated_arguments(
    device: Any, layout: KvLayout, heads: int, rotary_dim: int, norm: bool
) -> dict[str, Argument]:
    """(qkv, table, perhaps the weights of q's and k's norm, slots, pages, perhaps scales, q) of
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
    """(logits f32[r, vocab], step) -> (tokens i32[r], logprobs f32[r]); parameters are the step's.

    Temperature 0 takes the largest logit, the first of equals. logprobs are of the raw logits.
    NaN logits are never chosen; a row of nothing but NaN or -inf gives token 0.
    """
    return {
        "logits": f32("r", vocab),
        "step": step_argument(layout),
        "tokens": i32("r"),
        "logprobs": f32("r"),
    }


def top_logprobs_arguments(vocab: int, layout: StepLayout) -> dict[str, Argument]:
    """(logits f32[r, vocab], step, what `sample` gave of them: ids i32[r], logprobs f32[r]) ->
    (tokens i32[r, 20], their logprobs f32[r, 20]), the likeliest first, of equals the lowest first.

    -1 and 0 beyond what a row wants, and where it has nothing else left: NaN logits and -inf are
    none. The sum over the row is `sample`'s: a logprob is as far from its as the logits are apart.
    """
    return {
        "logits": f32("r", vocab),
        "step": step_argument(layout),
        "ids": i32("r"),
        "logprobs": f32("r"),
        "tokens": i32("r", MOST_TOP_LOGPROBS),
        "top": f32("r", MOST_TOP_LOGPROBS),
    }
