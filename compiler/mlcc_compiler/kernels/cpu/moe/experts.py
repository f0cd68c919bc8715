"""Products with each token's chosen experts on the CPU, for every scheme.

A task is a tile of an expert's columns times all tokens that chose it, some rows at a time: the
loops of a linear (`cpu/linear`), whose rows are found through the order of `sort_tokens.py`. So
weights of unused experts are not read, and the others once a step.

Tasks go by runs of neighbouring tiles, in each run expert by expert: so each thread has a share of
every expert, however many tokens that has. Run length suits memory prefetching; for a single token,
whose experts cost the same, a run is a whole matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.ir.graph import Graph, Weight, dims, tensor
from mlcc_compiler.ir.layout import WeightLayout
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import bind
from mlcc_compiler.kernels.cpu.linear.called_tiles import input_shapes
from mlcc_compiler.kernels.cpu.linear.floats import ROW_TILES, float_tile
from mlcc_compiler.kernels.cpu.linear.linear import inputs_of, packing
from mlcc_compiler.kernels.cpu.linear.quantized import row_tiles
from mlcc_compiler.kernels.cpu.linear.row_pairs import quantized_tile
from mlcc_compiler.kernels.cpu.linear.tasks import MANY, TileBody, cover_rows
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE, Output
from mlcc_compiler.kernels.cpu.linear.weights.stored_weight import StoredWeight
from mlcc_compiler.kernels.cpu.linear.weights.unpacked_panel import UnpackedPanel, unpacks_few
from mlcc_compiler.kernels.cpu.moe.packing import ExpertPacking
from mlcc_compiler.kernels.cpu.moe.sort_tokens import expert_order
from mlcc_compiler.kernels.frame import Expr, PrimFunc
from mlcc_compiler.kernels.kernel_set import KernelSet

_RUN = 4
"""Neighbouring tiles of an expert per run, in a step of several tokens."""


def stored(isa: Isa, shape: Sequence[int], scheme: str) -> ExpertPacking:
    """The packing of matrices [count, N, K]. Raises UnsupportedError if the group does not fit."""
    count, n_out, k = shape
    return ExpertPacking(count, packing(n_out, k, scheme, isa))


def layout(isa: Isa, shape: Sequence[int], scheme: str) -> WeightLayout:
    """The layout of matrices [count, N, K] for the weight writer."""
    return stored(isa, shape, scheme).layout()


def emit_expert_linear(
    kernels: KernelSet, graph: Graph, x: Any, choice: Any, weight: Weight, experts: int, *, out: Any
) -> Any:
    """Sort the tokens by expert, once per choice, and emit the product."""
    rows, chosen = dims(choice)
    plan = weight.plan
    key = ("expert_order", choice)
    if key not in graph.memo:
        each = tensor([experts + 1], "int32")
        lists = [tensor([rows, chosen], "int32"), each, each]
        made = kernels.cached_kernel(expert_order, experts, chosen)
        order = graph.call_tir(made, "expert_order", [choice], lists)
        graph.memo[key] = graph.items(order, 3)
    inputs = [*graph.memo[key], *inputs_of(kernels, graph, x, weight), *weight.parts]
    kernel = kernels.cached_kernel(
        expert_linear, plan.shape, plan.scheme, experts, chosen, dims(x)[1]
    )
    return graph.call_tir(kernel, "expert_linear", inputs, out)


def expert_linear(
    isa: Isa, shape: tuple[int, int, int], scheme: str, experts: int, chosen: int, width: int
) -> PrimFunc:
    """PrimFunc(order, begin, active, x, the weight's tensors, y[n, *]); the first three are of
    `expert_order`.

    x [n, width], or for codes what `quantize_rows` makes of it; width is K, or chosen * K where
    each choice has a part of its own. y as `ops.expert_linear` has it.
    """
    form = stored(isa, shape, scheme)
    one, kinds = form.one, form.count // experts
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        handle = B.arg("order", T.handle())
        begin, active = (
            B.arg(name, B.buffer((experts + 1,), "int32")) for name in ("begin", "active")
        )
        inputs = _input_shapes(isa, form, width)
        handles = [B.arg(f"x{i}", T.handle()) for i in range(len(inputs))]
        weights = [
            B.arg(t.suffix[1:] or "weight", B.buffer(t.shape, t.dtype)) for t in form.tensors
        ]
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        order = B.match_buffer(handle, (n, chosen), "int32")
        xs = [B.match_buffer(h, (n, w), d) for h, (w, d) in zip(handles, inputs, strict=True)]
        y = B.match_buffer(y_handle, (n, kinds * chosen * one.n), isa.activation_dtype)
        _Product(form, chosen, width != one.k, n, order, begin, active, xs, weights, y).emit()
    return builder.get()


@dataclass(frozen=True)
class _Task:
    """A task at run time: a tile, and the choices of its expert."""

    kind: Expr
    tile: Expr
    """Tile within its matrix."""
    stored: Expr
    """Tile within the weight."""
    first: Expr
    entries: Expr


@dataclass(frozen=True)
class _Product:
    """The product of one kernel: values that its tasks share, and their code."""

    form: ExpertPacking
    chosen: int
    own: bool
    """Whether each choice has its own part of x."""
    n: Expr
    order: Expr
    begin: Expr
    active: Expr
    xs: list[Any]
    weights: list[Expr]
    y: Expr

    def emit(self) -> None:
        """Few rows read the weight directly; many rows unpack it tile by tile."""
        if self.form.one.scheme.is_float:
            self._tasks(self._few)
            return
        with B.If(self.n < MANY):
            with B.Then():
                self._tasks(self._few)
            with B.Else():
                self._tasks(self._many)

    def _tasks(self, emit: Callable[[_Task], None]) -> None:
        experts, tiles = int(self.begin.shape[0]) - 1, self.form.one.tiles
        kinds, begin = self.form.count // experts, self.begin
        count = B.bind(T.Cast("int64", self.active[0]))
        run = B.bind(T.Select(self.n == 1, T.int64(tiles), T.int64(gcd(tiles, _RUN))))
        with B.parallel(count * (kinds * tiles)) as task:
            expert = B.bind(T.Cast("int64", self.active[task // run % count + 1]))
            entry = bind(task // (run * count) * run + task % run)
            tile, kind = bind(entry % tiles), bind(entry // tiles)
            first = B.bind(T.Cast("int64", begin[expert]))
            entries = B.bind(T.Cast("int64", begin[expert + 1]) - first)
            stored = bind((kind * experts + expert) * tiles + tile)
            emit(_Task(kind, tile, stored, first, entries))

    def _few(self, task: _Task) -> None:
        one = self.form.one
        panel = self._panel(task) if unpacks_few(one) else None
        self._cover(task, ROW_TILES if one.scheme.is_float else row_tiles(one.isa), panel)

    def _many(self, task: _Task) -> None:
        with B.If(task.entries < MANY):
            with B.Then():
                self._few(task)
            with B.Else():
                self._cover(task, row_tiles(self.form.one.isa)[:1], self._panel(task))

    def _panel(self, task: _Task) -> UnpackedPanel:
        """The task's tile, unpacked."""
        panel = UnpackedPanel(self.form.one, StoredWeight(self.form.one, self.weights))
        panel.fill(task.stored)
        return panel

    def _cover(self, task: _Task, sizes: tuple[int, ...], panel: UnpackedPanel | None) -> None:
        def register_tile(rows: int, row: Expr) -> None:
            self._body(task, rows, row, panel)(rows, T.int64(0), task.stored)

        cover_rows(sizes, task.entries, T.int64(0), task.entries, register_tile)

    def _body(self, task: _Task, rows: int, row: Expr, panel: UnpackedPanel | None) -> TileBody:
        """The emitter of a register tile for the choices from `row` on."""
        one, weights = self.form.one, self.weights
        some = _ChosenRows(self.order, self.chosen, rows, task.first + row, task.kind)
        output = ExpertOutput(one, self.y, None, some, task.tile)
        of_x = 1 if one.scheme.is_float else one.isa.activation_parts
        x = [some.view(buffer, of_x, each=self.own) for buffer in self.xs]
        if one.scheme.is_float:
            return partial(float_tile, one, x[0], weights[0], output)
        codes, scales, sums = x
        tile = quantized_tile(one, codes, scales, sums, weights, output)
        return (tile.on(panel) if panel else tile).tile


def _input_shapes(isa: Isa, form: ExpertPacking, width: int) -> list[tuple[int, str]]:
    """Row length and dtype of the arrays that represent x."""
    if form.one.scheme.is_float:
        return [(width, isa.activation_dtype)]
    return input_shapes(form.one, width)


class _ChosenRows:
    """Some entries of the sorted order: each one's token and choice number."""

    def __init__(self, order: Any, chosen: int, rows: int, first: Expr, kind: Expr) -> None:
        self.token, self.slot = (B.alloc_buffer((rows,), "int64") for _ in range(2))
        self.chosen, self.kind = chosen, kind
        with B.unroll(rows) as r:
            at = B.bind(first + r)
            entry = B.bind(T.Cast("int64", order[at // chosen, at % chosen]))
            B.buffer_store(self.token, entry // chosen, [r])
            B.buffer_store(self.slot, entry % chosen, [r])

    def view(self, buffer: Any, parts: int, each: bool) -> _RowView:
        """Rows of a buffer, one per entry; `each`: width of each choice's own part of a row, or of
        each of the parts of a row."""
        return _RowView(buffer, self, int(buffer.shape[1]) // (self.chosen * parts) if each else 0)


@dataclass(frozen=True)
class _RowView:
    """Acts like a buffer whose row r is the row of entry r."""

    buffer: Any
    entries: _ChosenRows
    own: int

    @property
    def shape(self) -> Any:
        """Shape of the underlying buffer."""
        return self.buffer.shape

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        return self.buffer[self._index(*at)]

    def vload(self, at: list[Expr], dtype: str) -> Expr:
        """Neighbours from an index on."""
        return self.buffer.vload(list(self._index(*at)), dtype)

    def _index(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        entries = self.entries
        return entries.token[row], entries.slot[row] * self.own + column


@dataclass(frozen=True)
class ExpertOutput(Output):
    """Writes results next to each other in the rows of their tokens."""

    entries: _ChosenRows
    tile: Expr

    def at(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """In the token's row, after its earlier choices and other matrix kinds."""
        entries = self.entries
        slot = entries.kind * entries.chosen + entries.slot[row]
        return entries.token[row], slot * self.packing.n + column

    def tile_of(self, tile: Expr) -> Expr:
        """The number of a tile within its matrix."""
        return self.tile
