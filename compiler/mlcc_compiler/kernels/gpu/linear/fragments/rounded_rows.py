"""Norms and gated products whose result only products by tensor cores read: they write it as pairs
of float16 (`rounded.py`), or as 8-bit floats (`fp8_outputs.py`), and no launch has to round it.

A thread takes units of eight neighbours. Arithmetic is float32's, as in `elementwise/norm.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, kernel, store, u32
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import ACTIVATIONS
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_outputs import form_of, store_row, words_of
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import Fp8Row
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import order_of_text, store_unit
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    bind,
    ceil_div,
    int32,
    launch,
    real,
    reduce,
    when,
)


def rounded_rms_norm(
    gpu: Gpu, row: Sizes, weight: Sizes, eps: float, offset: float, order: str
) -> PrimFunc:
    """(x f32[n, size], w f32[size]) -> u32[n, size / 2], `norm.rms_norm` rounded."""
    (size,) = row

    def body(x: Expr, w: Expr, y: Expr) -> None:
        def read(i: Expr, unit: Expr) -> list[Expr]:
            return load(x, i, unit * UNIT, UNIT)

        _normalise(gpu, size, read, w, y, (eps, offset), order)

    y = u32("n", words_of(order, size))
    return kernel(body, x=activations(gpu, "n", size), w=f32(size), y=y)


def rounded_add_rms_norm(
    gpu: Gpu, row: Sizes, other: Sizes, weight: Sizes, eps: float, offset: float, order: str
) -> PrimFunc:
    """(x f32[n, size], residual f32[n, size], w f32[size]) -> (x + residual, u32[n, size / 2]):
    `norm.add_rms_norm`, the norm rounded."""
    (size,) = row

    def body(x: Expr, residual: Expr, w: Expr, total: Expr, y: Expr) -> None:
        def read(i: Expr, unit: Expr) -> list[Expr]:
            first, second = (load(of, i, unit * UNIT, UNIT) for of in (x, residual))
            sums = Local(UNIT)
            for j in range(UNIT):
                sums[j] = first[j] + second[j]
            for at in range(0, UNIT, 4):
                with T.vectorized(4) as v:
                    store(total, sums[int32(v) + at], i, unit * UNIT + (int32(v) + at))
            return [sums[j] for j in range(UNIT)]

        _normalise(gpu, size, read, w, y, (eps, offset), order)

    rows = activations(gpu, "n", size)
    made = {"total": rows, "y": u32("n", words_of(order, size))}
    return kernel(body, x=rows, residual=rows, w=f32(size), **made)


def rounded_gated(gpu: Gpu, row: Sizes, kind: str, order: str) -> PrimFunc:
    """(gate_up f32[n, 2 * inner]) -> u32[n, inner / 2], `activation.gated_fused` rounded."""
    inner = row[0] // 2

    def body(x: Expr, out: Expr) -> None:
        if form := form_of(order, inner):
            gated_fp8(gpu, x, out, kind, form)
        else:
            gated_rows(gpu, x, out, kind, order_of_text(order))

    out = u32("n", words_of(order, inner))
    return kernel(body, gate_up=activations(gpu, "n", 2 * inner), out=out)


def gated_fp8(gpu: Gpu, x: Any, out: Any, kind: str, form: Fp8Row) -> None:
    """Emit the launch of `rounded_gated` that writes 8-bit floats: a workgroup a row."""
    units = form.k // UNIT
    count = -(-units // gpu.threads)
    with launch((x.shape[0],), (gpu.threads,)) as (row, thread):
        held = Local(count * UNIT)
        for i in range(count):
            unit = bind(i * gpu.threads + thread)
            for j in range(UNIT):
                held[i * UNIT + j] = real(0)
            with when(unit < units):
                for j, value in enumerate(gated_values(x, kind, row, unit)):
                    held[i * UNIT + j] = value
        store_row(gpu, out, row, form, held, thread)


def gated_rows(gpu: Gpu, x: Any, out: Any, kind: str, order: tuple[int, ...]) -> None:
    """Emit the launch of `rounded_gated`."""
    units = int(x.shape[1]) // (2 * UNIT)
    grid = ceil_div(units, gpu.threads), x.shape[0]
    with launch(grid, (gpu.threads,)) as (block, row, thread):
        unit = bind(block * gpu.threads + thread)
        with when(unit < units):
            gated_unit(x, out, kind, order, row, unit)


def gated_unit(x: Any, out: Any, kind: str, order: tuple[int, ...], row: Expr, unit: Expr) -> None:
    """Emit one unit of activation(first half of x's row) * second half."""
    store_unit(out, gated_values(x, kind, row, unit), order, row, unit)


def gated_values(x: Any, kind: str, row: Expr, unit: Expr) -> list[Expr]:
    """The eight numbers of that unit."""
    inner, values = int(x.shape[1]) // 2, Local(UNIT)
    gate, up = (load(x, row, unit * UNIT + first, UNIT) for first in (0, inner))
    for i in range(UNIT):
        values[i] = ACTIVATIONS[kind](gate[i]) * up[i]
    return [values[i] for i in range(UNIT)]


def _normalise(
    gpu: Gpu,
    size: int,
    read: Callable[[Expr, Expr], list[Expr]],
    w: Any,
    y: Any,
    numbers: tuple[float, float],
    order: str,
) -> None:
    """Emit the launch: a workgroup a row, whose numbers stay in registers in between. read: emits a
    unit of a row."""
    (eps, offset), units, form = numbers, size // UNIT, form_of(order, size)
    count = -(-units // gpu.threads)
    with launch((y.shape[0],), (gpu.threads,)) as (i, thread):
        held, squares = Local(count * UNIT), Local()
        squares[0] = real(0)
        if form is not None:
            for j in range((count - 1) * UNIT, count * UNIT):
                held[j] = real(0)

        def each(body: Callable[[int, Expr], None]) -> None:
            for number in range(count):
                unit = bind(number * gpu.threads + thread)
                if units % gpu.threads:
                    with when(unit < units):
                        body(number * UNIT, unit)
                else:
                    body(number * UNIT, unit)

        def take(first: int, unit: Expr) -> None:
            for j, value in enumerate(read(i, unit)):
                held[first + j] = value
                squares[0] = squares[0] + held[first + j] * held[first + j]

        each(take)
        mean = bind(reduce(gpu, squares[0], add, thread, gpu.threads) * real(1 / size))
        factor = bind(real(1) / T.sqrt(mean + real(eps)))

        def put(first: int, unit: Expr) -> None:
            weights = _load_row(w, unit)
            for j in range(UNIT):
                held[first + j] = held[first + j] * factor * (weights[j] + real(offset))
            if form is None:
                found = [held[first + j] for j in range(UNIT)]
                store_unit(y, found, order_of_text(order), i, unit)

        each(put)
        if form is not None:
            store_row(gpu, y, i, form, held, thread)


def _load_row(w: Any, unit: Expr) -> list[Expr]:
    """Emit the loads of a unit of a vector."""
    held = Local(UNIT)
    for at in range(0, UNIT, 4):
        with T.vectorized(4) as v:
            store(held.buffer, w[unit * UNIT + (int32(v) + at)], int32(v) + at)
    return [held[j] for j in range(UNIT)]
