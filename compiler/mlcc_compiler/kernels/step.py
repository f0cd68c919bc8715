"""The arrays that describe a step, named and shaped here once.

Passes make parameters of them, kernels take them as arguments under the same names: n tokens, b
sequences, p pages in all lists, r rows of logits, m rows sampled a step before, c copies.
"""

from __future__ import annotations

from mlcc_compiler.kernels.frame import Argument, f32, i32

TOKENS: dict[str, Argument] = {"token_slots": i32("n")}
"""Where each token's keys and values go: page * page_size + offset, or -1."""

SEQUENCES: dict[str, Argument] = {
    "qo_indptr": i32("b + 1"),
    "page_indptr": i32("b + 1"),
    "page_indices": i32("p"),
    "last_page_len": i32("b"),
}
"""Which tokens and pages belong to which sequence."""

LAST_SAMPLED: dict[str, Argument] = {"last_sampled": i32("m")}
"""Tokens of the step before, by row."""

SAMPLING: dict[str, Argument] = {
    "temperature": f32("r"),
    "top_k": i32("r"),
    "top_p": f32("r"),
    "min_p": f32("r"),
    "uniforms": f32("r"),
}
"""How each row of logits is sampled."""

COPIES: dict[str, Argument] = {"src": i32("c"), "dst": i32("c")}
"""Pages to copy."""
