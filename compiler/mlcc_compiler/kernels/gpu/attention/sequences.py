"""Locates the sequences of a step, their keys and values in the pages; shared by the attention
kernels of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels.frame import Argument, Device, Expr, activations, page_arguments, store
from mlcc_compiler.kernels.gpu.elementwise.activation import tanh
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, int32, real, when
from mlcc_compiler.kernels.step import Step, step_argument

VECTOR = 4
"""Neighbouring dimensions that a thread loads at once; it divides every head_dim."""
LOWEST = -1e30
"""Below every score; its exponential is 0, and no driver overflows in computing it."""


def heads_together(shape: AttentionShape, most: int) -> list[int]:
    """Possible numbers of query heads per workgroup, of a group, the largest first."""
    return [h for h in range(min(shape.group, most), 0, -1) if shape.group % h == 0]


def apply_softcap(shape: AttentionShape, score: Expr) -> Expr:
    """The score after the soft cap."""
    if shape.softcap is None:
        return score
    return real(shape.softcap) * tanh(score * real(1 / shape.softcap))


def sink_weight(sink: Expr, top: Expr) -> Expr:
    """The weight of a head's sink relative to e ** (score - top). Clamped at e ** 80, beyond which
    other weights vanish and drivers could overflow."""
    return T.exp(T.min(sink - top, real(80)))


def first_key(shape: AttentionShape, position: Expr) -> Expr:
    """The first key visible to a query at `position`."""
    if shape.window is None:
        return T.int32(0)
    return T.max(position + (1 - shape.window), 0)


def arguments(device: Device, shape: AttentionShape, layout: KvLayout) -> dict[str, Argument]:
    """Inputs of attention: queries, pages, the scales of 8-bit pages, and the step."""
    rows = activations(device, "n", shape.heads, shape.head_dim)
    return {"q": rows, **page_arguments(layout), "step": step_argument(layout.step)}


@dataclass(frozen=True)
class PagedSequence:
    """One sequence of a step whose keys lie in pages."""

    index: Expr
    token: Expr
    """Its first query token."""
    tokens: Expr
    keys: Expr
    page: Expr
    """Word of the step that would name the page of its first key if no page had been freed."""
    base: Expr
    """Its first key whose page is listed: 0 without a window."""


class PagedSequences:
    """Maps tokens and pages to sequences."""

    def __init__(self, shape: AttentionShape, layout: KvLayout, words: Expr) -> None:
        self.shape, self.layout, self.step = shape, layout, Step(layout.step, words)

    @property
    def count(self) -> Expr:
        return self.step.count("sequences")

    @property
    def tokens(self) -> Expr:
        return self.step.count("tokens")

    def first_token(self, s: Expr) -> Expr:
        """First token of a sequence, or the end of the last."""
        return self.step.sequence(s, "first_token")

    def first_page(self, s: Expr) -> Expr:
        """Start of a sequence's pages in the group's list, or the end of the last."""
        return self.step.sequence(s, f"first_page.{self.layout.group}")

    def find(self, first: Callable[[Expr], Expr], item: Expr) -> Expr:
        """The sequence s with first(s) <= item < first(s + 1); first is monotone."""
        low, high = Local(1, "int32"), Local(1, "int32")
        low[0], high[0] = T.int32(0), bind(self.count)
        with T.While(high[0] - low[0] > 1):
            middle = bind(T.shift_right(low[0] + high[0], 1))
            with T.If(first(middle) <= item):
                with T.Then():
                    low[0] = middle
                with T.Else():
                    high[0] = middle
        return bind(low[0])

    def of(self, s: Expr) -> PagedSequence:
        """Sequence s."""
        group, token = self.layout.group, bind(self.first_token(s))
        slid = T.int32(0)
        if self.shape.slides:
            slid = bind(self.step.sequence(s, f"page_number.{group}"))
        return PagedSequence(
            index=s,
            token=token,
            tokens=bind(self.first_token(s + 1) - token),
            keys=bind(self.step.sequence(s, "length")),
            page=bind(self.step.pages_begin(group) + self.first_page(s) - slid),
            base=bind(slid * self.layout.page_size),
        )

    def first_key(self, sequence: PagedSequence) -> Expr:
        """The first key visible to the query of a sequence of one token."""
        if self.shape.visible_from:
            return self.step.token(sequence.token, "visible_from")
        return first_key(self.shape, sequence.keys - 1)

    def key_row(self, sequence: PagedSequence, key: Expr, kv_head: Expr) -> Expr:
        """Index of a key's row, the pages being rows of head_dim elements."""
        number, offset = split(key, self.layout.page_size)
        page = self.step.page(sequence.page, number)
        row = (page * (2 * self.shape.kv_heads) + kv_head) * self.layout.page_size
        return bind(row + offset)


def load_vector(buffer: Expr, *at: Expr, count: int = VECTOR) -> Local:
    """Vector at[-1] of a row, `count` neighbours, as float32 registers.

    Indexed in vectors, so that TVM knows they are aligned: else it loads single elements.
    """
    cells = Local(count)
    value = buffer[tuple([*at[:-1], T.Ramp(at[-1] * count, 1, count)])]  # noqa: C409
    store(cells.buffer, value.astype(f"float32x{count}"), T.Ramp(0, 1, count))
    return cells


def split(i: Expr, size: int) -> tuple[Expr, Expr]:
    """(i // size, i % size) for i >= 0, a fact that TVM cannot derive for registers."""
    return bind(tirx.truncdiv(i, size)), bind(tirx.truncmod(i, size))


def strided(count: Expr, threads: int, thread: Expr, body: Callable[[Expr], None]) -> None:
    """Emit body(i) for this thread's part of 0 .. count - 1; neighbouring threads take neighbouring
    elements."""
    with T.serial(ceil_div(count, threads)) as k:
        i = bind(int32(k) * threads + thread)
        with when(i < count):
            body(i)
