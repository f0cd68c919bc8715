"""Two building blocks that live in vector registers: a matrix-product tile and a transpose.

The tile is the classic outer-product micro-kernel (Goto & van de Geijn, 2008): a few rows by a few
vectors of sums stay in registers while it walks the common dimension. Packing, blocking and
threads are the caller's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, lanes_of, spread
from mlcc_compiler.kernels.frame import Expr

Load = Callable[[Expr, Expr], Expr]
Step = Callable[..., None]


@dataclass(frozen=True)
class TileShape:
    """Sums that fit in the registers: `rows` x `vectors` of them, of `lanes` each."""

    rows: int
    vectors: int
    lanes: int


def tile_shape(lanes: int, wide: int) -> TileShape:
    """The tile for a target whose widest vector is `wide`: AVX2 has 16 registers, the others 32."""
    return TileShape(4, 2 if wide == 8 else 4, lanes)


def split(total: int, most: int) -> list[int]:
    """Cut `total` vectors into even runs of at most `most`: [(5, 4)] gives 3 + 2."""
    runs = -(-total // most)
    return [total // runs + (i < total % runs) for i in range(runs)]


def row_tiles(rows: Expr, most: int, group: int, body: Callable[[Expr, int], None]) -> None:
    """Emit body(first_row, count) over `rows`, a run-time multiple of `group`."""
    with T.serial(T.floordiv(rows, most)) as tile:
        body(tile * most, most)
    rest = bind(T.floormod(rows, most))
    for count in sorted({group * i % most for i in range(1, most)} - {0}):
        with T.If(rest == count), T.Then():
            body(rows - count, count)


def product(
    rows: int,
    vectors: int,
    lanes: int,
    walk: Callable[[Step], None],
    init: Load,
    finish: Callable[[int, int, Expr], None],
    add: Callable[[Expr, Expr, Expr], Expr] = lambda total, a, b: total + a * b,
) -> None:
    """Emit sums[r][v] = init(r, v) + sum over k of a(r) * b(v), then finish(r, v, sum).

    `walk(step)` emits the loop over k and calls `step(a, b)` inside it once or more, with a(r) a
    scalar and b(v) a vector at that k. add(sum, a(r) in all lanes, b(v)) is what a product adds.
    """
    sums = Registers(rows * vectors, lanes)
    cells = [(r, v) for r in range(rows) for v in range(vectors)]
    for r, v in cells:
        sums[r * vectors + v] = init(r, v)

    def step(a: Callable[[int], Expr], b: Callable[[int], Expr]) -> None:
        columns = [bind(b(v)) for v in range(vectors)]
        for r in range(rows):
            factor = bind(spread(a(r), lanes))
            for v in range(vectors):
                sums[r * vectors + v] = add(sums[r * vectors + v], factor, columns[v])

    walk(step)
    for r, v in cells:
        finish(r, v, sums[r * vectors + v])


def transpose(rows: Sequence[Expr]) -> list[Expr]:
    """Turn `lanes` vectors of `lanes` each: output j holds lane j of every input.

    log2(lanes) rounds of perfect shuffles: vector i meets vector i + lanes / 2.
    """
    lanes = len(rows)
    half = lanes // 2
    low = [x for i in range(half) for x in (i, lanes + i)]
    high = [half + x for x in low]
    current = _registers(rows)
    for _ in range(lanes.bit_length() - 1):
        pairs = [[current[i], current[i + half]] for i in range(half)]
        current = _registers([T.Shuffle(pair, way) for pair in pairs for way in (low, high)])
    return [current[i] for i in range(lanes)]


def lane_sums(count: int, leaf: Callable[[int], list[Expr]]) -> list[Expr]:
    """`leaf(i)` gives some vectors; output r holds in lane i the sum of the lanes of leaf(i)[r].

    `count` is a power of two and at most the lanes of a leaf. Neighbours are added in halves as
    soon as there are two, so that few vectors are live.
    """
    return [_fold(x, count) for x in _merged(0, count, leaf)]


def _merged(first: int, count: int, leaf: Callable[[int], list[Expr]]) -> list[Expr]:
    """Vectors of `count` items side by side, each item a part of a sum."""
    if count == 1:
        return leaf(first)
    left = _merged(first, count // 2, leaf)
    right = _merged(first + count // 2, count // 2, leaf)
    return [_halve([a, b], count) for a, b in zip(left, right, strict=True)]


def _fold(x: Expr, count: int) -> Expr:
    """Add up each of the `count` items of a vector."""
    while lanes_of(x) > count:
        x = _halve([x], count)
    return x


def _halve(parts: list[Expr], count: int) -> Expr:
    """The `count` items of all parts, the lower half of each added to its upper half."""
    lanes = lanes_of(parts[0]) * len(parts)
    width = lanes // count
    low = [i for i in range(lanes) if i % width < width // 2]
    return bind(T.Shuffle(parts, low) + T.Shuffle(parts, [i + width // 2 for i in low]))


def _registers(values: Sequence[Expr]) -> Registers:
    registers = Registers(len(values), lanes_of(values[0]))
    for i, value in enumerate(values):
        registers[i] = value
    return registers
