"""Layout of keys and values within a CPU's page.

A page has for each head its keys, then its values: [num_pages, 2, kv_heads, page_size * head_dim].
Values are contiguous, [page_size, head_dim]; keys are stored dimension after dimension, [head_dim,
page_size], so that neighbouring keys are the lanes of a vector (a column) and no product is summed
over its lanes. 8-bit numbers are stored in quads, which one instruction multiplies and adds: keys
as [head_dim / 4, page_size, 4], values as [page_size / 4, head_dim, 4]. The tensor's declared shape
is always [.., page_size, head_dim].
"""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.attention.blocking import KEYS, QUAD, uses_quads
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, cast, lanes_of
from mlcc_compiler.kernels.frame import Expr, store

Put = Callable[[Expr, Expr], None]
"""(first dimension, values of it and its neighbours): writes them, in the dtype of the pages."""


def kv_place(
    layout: KvLayout, which: int, pages: Expr, page: Expr, head: Expr, offset: Expr
) -> Put:
    """A writer for one key (KEYS) or value: the token at `offset` of a page."""
    size, dim = layout.page_size, layout.head_dim

    def put(at: Expr, stride: int, values: Expr) -> None:
        lanes = lanes_of(values)
        index = at if lanes == 1 else T.Ramp(at, stride, lanes)
        store(pages, cast(layout.dtype, values), page, which, head, 0, index)

    def row(d: Expr, values: Expr) -> None:
        put(offset * dim + d, 1, values)

    def column(d: Expr, values: Expr) -> None:
        put(d * size + offset, size, values)

    def key_quads(d: Expr, values: Expr) -> None:
        """Whole quads: d and the lanes are multiples of four."""
        values = bind(cast(layout.dtype, values))
        for first in range(0, lanes_of(values), QUAD):
            four = T.Shuffle([values], list(range(first, first + QUAD)))
            put((d + first) * size + offset * QUAD, 1, four)

    def value_quads(d: Expr, values: Expr) -> None:
        part = T.floordiv(offset, QUAD) * dim * QUAD + T.floormod(offset, QUAD)
        put(part + d * QUAD, QUAD, values)

    if uses_quads(layout):
        return key_quads if which == KEYS else value_quads
    return column if which == KEYS else row
