"""Rotary position embedding (Su et al., 2021), of halves as in Hugging Face or of neighbouring
pairs as in the paper: a table of cosines and sines once per step, applied to queries and keys of
every layer. Scaling variants (YaRN, Llama 3, linear) change `inv_freq` and `mscale`, which are
arguments.
"""

import json

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.mrope import of_section
from mlcc_compiler.kernels.step import Step, step_argument

_LIBM_COST = 32  # elements of cheap arithmetic that one sine is worth


def rope_table(isa: Isa, position: Sizes, inv_freq: Sizes, mscale: float) -> PrimFunc:
    """(positions i32[n], inv_freq f32[rotary_dim / 2]) -> f32[n, rotary_dim].

    The first half of a row holds cosines of position * inv_freq (rounded to f32, as torch does),
    the second half sines, both times mscale. libm computes them: once per token, not per layer.
    """
    (half,) = inv_freq
    rotary_dim = 2 * half

    def body(positions: Expr, frequencies: Expr, table: Expr) -> None:
        def row(i: Expr) -> None:
            with T.serial(half) as j:
                angle = bind(T.Cast("float32", positions[i]) * frequencies[j])
                store(table, T.cos(angle) * T.float32(mscale), i, j)
                store(table, T.sin(angle) * T.float32(mscale), i, half + j)

        each_row(positions.shape[0], rotary_dim * _LIBM_COST, row)

    return kernel(body, positions=i32("n"), inv_freq=f32(half), table=f32("n", rotary_dim))


def mrope_table(
    isa: Isa, layout: StepLayout, half: int, mscale: float, sections: str, interleaved: int
) -> PrimFunc:
    """(positions i32[n], inv_freq f32[half], step) -> f32[n, 2 * half], as `rope_table`, but the
    frequencies of the three sections are multiplied with the step's position_t, position_h and
    position_w."""

    def body(positions: Expr, frequencies: Expr, words: Expr, table: Expr) -> None:
        step = Step(layout, words)

        def row(i: Expr) -> None:
            places = [bind(T.Cast("float32", step.token(i, f"position_{a}"))) for a in "thw"]
            with T.serial(half) as j:
                place = of_section(j, places, json.loads(sections), interleaved)
                angle = bind(place * frequencies[j])
                store(table, T.cos(angle) * T.float32(mscale), i, j)
                store(table, T.sin(angle) * T.float32(mscale), i, half + j)

        each_row(positions.shape[0], 2 * half * _LIBM_COST, row)

    return kernel(
        body,
        positions=i32("n"),
        inv_freq=f32(half),
        step=step_argument(layout),
        table=f32("n", 2 * half),
    )


def growth(isa: Isa, position: Sizes, beta: float, length: int) -> PrimFunc:
    """(positions i32[n]) -> f32[n, 1], 1 + beta * log(1 + position // length)."""

    def body(positions: Expr, y: Expr) -> None:
        with T.serial(positions.shape[0]) as i:
            passed = T.Cast("float32", 1 + T.floordiv(positions[i], length))
            store(y, T.float32(1) + T.float32(beta) * T.log(passed), i, 0)

    return kernel(body, positions=i32("n"), y=f32("n", 1))


def rope(isa: Isa, row: Sizes, table: Sizes, pairs: int) -> PrimFunc:
    """(x f32[n, heads, head_dim], table f32[n, rotary_dim]) -> x with its first rotary_dim rotated.

    Element j < rotary_dim / 2 pairs with j + rotary_dim / 2, or with `pairs` 2 j with 2 j + 1; the
    rest of a head is copied.
    """
    turn = _turn_pairs if pairs else _turn
    (heads, head_dim), (rotary_dim,) = row, table

    def body(x: Expr, angles: Expr, y: Expr) -> None:
        def one(i: Expr) -> None:
            with T.serial(heads) as h:
                turn(x, angles, y, i, h, rotary_dim, isa.lanes)
                _copy_rest(x, y, i, h, rotary_dim, isa.lanes)

        each_row(x.shape[0], heads * head_dim, one)

    rows = activations(isa, "n", *row)
    return kernel(body, x=rows, table=f32("n", *table), y=rows)


def _turn(x: Expr, table: Expr, y: Expr, i: Expr, h: Expr, rotary_dim: int, lanes: int) -> None:
    """Emit the rotation of one head of one token."""
    half = rotary_dim // 2
    lanes = fit_lanes(half, lanes)
    with T.serial(half // lanes) as j:
        low, high = span(j * lanes, lanes), span(half + j * lanes, lanes)
        a, b = bind(x[i, h, low]), bind(x[i, h, high])
        cos, sin = bind(table[i, low]), bind(table[i, high])
        store(y, a * cos - b * sin, i, h, low)
        store(y, b * cos + a * sin, i, h, high)


def _turn_pairs(
    x: Expr, table: Expr, y: Expr, i: Expr, h: Expr, rotary_dim: int, lanes: int
) -> None:
    """Emit the rotation of neighbouring pairs, one pair at a time."""
    half = rotary_dim // 2
    with T.serial(half) as j:
        a, b = bind(x[i, h, 2 * j]), bind(x[i, h, 2 * j + 1])
        cos, sin = bind(table[i, j]), bind(table[i, half + j])
        store(y, a * cos - b * sin, i, h, 2 * j)
        store(y, b * cos + a * sin, i, h, 2 * j + 1)


def _copy_rest(x: Expr, y: Expr, i: Expr, h: Expr, rotary_dim: int, lanes: int) -> None:
    rest = int(x.shape[2]) - rotary_dim
    if rest:
        lanes = fit_lanes(rest, lanes)
        with T.serial(rest // lanes) as j:
            at = span(rotary_dim + j * lanes, lanes)
            store(y, x[i, h, at], i, h, at)
