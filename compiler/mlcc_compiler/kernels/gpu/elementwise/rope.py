"""Rotary position embedding (Su et al., 2021), of halves or of pairs, on the GPU. float32.

The angles of a step are computed once, by one kernel, for all layers. sin and cos of GPUs lose
digits with the size of their argument, so it is first reduced exactly to a quarter turn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, real
from mlcc_compiler.kernels.mrope import of_section
from mlcc_compiler.kernels.step import Step, step_argument

_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def rope_table(gpu: Gpu, position: Sizes, inv_freq: Sizes, scale: float) -> PrimFunc:
    """(positions i32[n], inv_freq f32[rotary_dim / 2]) -> f32[n, rotary_dim]: cosines, then sines,
    of position * inv_freq, times scale."""
    (half,) = inv_freq

    def body(positions: Expr, frequencies: Expr, table: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            angle = positions[i].astype("float32") * frequencies[j]
            cosine, sine = cos_sin(angle)
            store(table, cosine * real(scale), i, j)
            store(table, sine * real(scale), i, j + half)

        each_element(gpu, positions.shape[0], half, element)

    return kernel(body, positions=i32("n"), inv_freq=f32(half), table=f32("n", 2 * half))


def mrope_table(
    gpu: Gpu, layout: StepLayout, half: int, scale: float, sections: str, interleaved: int
) -> PrimFunc:
    """(positions i32[n], inv_freq f32[half], step) -> f32[n, 2 * half], as `rope_table`, but the
    frequencies of the three sections are multiplied with the step's position_t, position_h and
    position_w."""

    def body(positions: Expr, frequencies: Expr, words: Expr, table: Expr) -> None:
        step = Step(layout, words)

        def element(i: Expr, j: Expr) -> None:
            places = [bind(step.token(i, f"position_{axis}")) for axis in "thw"]
            place = of_section(j, places, json.loads(sections), interleaved)
            cosine, sine = cos_sin(bind(place.astype("float32") * frequencies[j]))
            store(table, cosine * real(scale), i, j)
            store(table, sine * real(scale), i, j + half)

        each_element(gpu, positions.shape[0], half, element)

    return kernel(
        body,
        positions=i32("n"),
        inv_freq=f32(half),
        step=step_argument(layout),
        table=f32("n", 2 * half),
    )


def growth(gpu: Gpu, position: Sizes, beta: float, length: int) -> PrimFunc:
    """(positions i32[n]) -> f32[n, 1], 1 + beta * log(1 + position // length)."""

    def body(positions: Expr, y: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            passed = (1 + tirx.floordiv(positions[i], length)).astype("float32")
            store(y, real(1) + real(beta) * T.log(passed), i, j)

        each_element(gpu, positions.shape[0], 1, element)

    return kernel(body, positions=i32("n"), y=f32("n", 1))


def rope(gpu: Gpu, row: Sizes, table: Sizes, pairs: int) -> PrimFunc:
    """(x f32[n, heads, head_dim], table f32[n, rotary_dim]) -> x, its first rotary_dim rotated:
    halves, or with `pairs` neighbours."""
    turn = turned_pairs if pairs else turned
    (heads, head_dim), (rotary_dim,) = row, table

    def body(x: Expr, angles: Expr, y: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            h, d = bind(j // head_dim), bind(j % head_dim)
            store(y, turn(lambda at: x[i, h, at], angles, i, d, rotary_dim), i, h, d)

        each_element(gpu, x.shape[0], heads * head_dim, element)

    rows = activations(gpu, "n", *row)
    return kernel(body, x=rows, table=f32("n", *table), y=rows)


def turned(value: Callable[[Expr], Expr], table: Expr, i: Expr, d: Expr, rotary_dim: int) -> Expr:
    """Element d of token i's head `value` after the rotation, its partner half the rotary size
    away."""
    half = rotary_dim // 2
    angle = tirx.truncmod(d, half)  # d >= 0, which TVM cannot see: a floormod would overflow
    cosine, sine = bind(table[i, angle]), bind(table[i, angle + half])
    partner = T.if_then_else(d < half, d + half, T.if_then_else(d < rotary_dim, d - half, d))
    sign = T.if_then_else(d < half, real(-1), real(1))
    own = bind(value(d))
    both = own * cosine + sign * bind(value(partner)) * sine
    return bind(T.if_then_else(d < rotary_dim, both, own))


def turned_pairs(
    value: Callable[[Expr], Expr], table: Expr, i: Expr, d: Expr, rotary_dim: int
) -> Expr:
    """Element d after the rotation of neighbouring pairs."""
    angle = bind(T.if_then_else(d < rotary_dim, d // 2, 0))
    cosine, sine = bind(table[i, angle]), bind(table[i, angle + rotary_dim // 2])
    odd = bind(tirx.floormod(d, 2))
    partner = T.if_then_else(d < rotary_dim, d + 1 - 2 * odd, d)
    sign = T.if_then_else(odd == 0, real(-1), real(1))
    own = bind(value(d))
    both = own * cosine + sign * bind(value(partner)) * sine
    return bind(T.if_then_else(d < rotary_dim, both, own))


def _quarter_turn() -> list[float]:
    """pi / 2 in parts of 7 bits, so that their products with up to 2**17 turns are exact."""
    parts, rest = [], math.pi / 2
    for _ in range(4):
        unit = 2.0 ** (math.floor(math.log2(rest)) - 6)
        parts.append(math.floor(rest / unit) * unit)
        rest -= parts[-1]
    return [*parts, rest]


def cos_sin(angle: Expr) -> tuple[Expr, Expr]:
    """Cosine and sine by Cephes' polynomials (Moshier, 1989) after reduction to +-pi/4.

    Exact to float32's own rounding of the angle for angles up to 2**17; positions stay below.
    """
    angle = bind(angle)
    turns = bind((angle * real(0.6366197723675814) + real(0.5)).astype("int32"))
    n = bind(turns.astype("float32"))
    r = angle
    for part in _quarter_turn():
        r = bind(r - n * real(part))
    z = bind(r * r)
    sine = bind(((real(_SIN[0]) * z + real(_SIN[1])) * z + real(_SIN[2])) * z * r + r)
    cosine = bind(
        ((real(_COS[0]) * z + real(_COS[1])) * z + real(_COS[2])) * z * z - real(0.5) * z + real(1)
    )
    swap = bind(T.bitwise_and(turns, 1))
    a, b = T.Select(swap == 1, sine, cosine), T.Select(swap == 1, cosine, sine)
    negate_a = T.bitwise_and(T.shift_right(turns + 1, 1), 1)
    negate_b = T.bitwise_and(T.shift_right(turns, 1), 1)
    a = bind(T.Select(negate_a == 1, real(0) - a, a))
    b = bind(T.Select(negate_b == 1, real(0) - b, b))
    return a, b
