"""Where the numbers of a key or value lie in a CPU's pages.

A page has of each head its keys, then its values: [num_pages, 2, kv_heads, page_size * head_dim].
Values lie one after another, [page_size, head_dim]; keys dimension after dimension, [head_dim,
page_size], so that neighbouring keys are the lanes of a vector (a column) and no product is ever
summed over its lanes. The tensor's shape says [.., page_size, head_dim] of both, as elsewhere.
"""

from collections.abc import Callable

from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.attention.blocking import KEYS
from mlcc_compiler.kernels.cpu.vector_math import span
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.layout import KvLayout

Place = Callable[[Expr, int], tuple[Expr, ...]]
"""(first dimension, how many neighbouring ones) -> the index of them in the pages."""


def kv_place(layout: KvLayout, which: int, page: Expr, head: Expr, offset: Expr) -> Place:
    """Of one key (KEYS) or value (VALUES): the token at `offset` of a page."""
    size = layout.page_size

    def key(d: Expr, lanes: int) -> tuple[Expr, ...]:
        at = d * size + offset
        return page, KEYS, head, 0, at if lanes == 1 else T.Ramp(at, size, lanes)

    def value(d: Expr, lanes: int) -> tuple[Expr, ...]:
        return page, which, head, offset, span(d, lanes)

    return key if which == KEYS else value
