"""Building blocks of GPU kernels: launches, registers, shared memory, reductions.

Called while the body of a kernel is being built (see `kernels/frame.py`). A PrimFunc may hold
several launches behind conditions on its sizes: the host code chooses.

Grids stay below 65,536 in x and y: WebGPU's limit, and TVM's workaround starts one group too many.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu

MAX_GRID = 65535
F16_MAX = 65504.0
_ALL_LANES = 0xFFFFFFFF


def int32(x: Expr) -> Expr:
    """An index or size as int32."""
    return T.int32(x) if isinstance(x, int) else x.astype("int32")


def real(value: float) -> Expr:
    """A float32 constant, exact to the bit.

    TVM's source generators print seven digits, which is up to four units in the last place off;
    where that loses something the bits are given instead.
    """
    exact = np.float32(value)
    if np.float32(f"{exact:.6e}") == exact:
        return T.float32(float(exact))
    return T.reinterpret("float32", T.uint32(int(exact.view(np.uint32))))


def clamp_f16(value: Expr) -> Expr:
    """Clamp to float16's finite range."""
    return tirx.max(tirx.min(value, real(F16_MAX)), real(-F16_MAX))


def ceil_div(a: Expr, b: int) -> Expr:
    """a / b rounded up, for a >= 0."""
    return -(-a // b) if isinstance(a, int) else tirx.floordiv(a + (b - 1), b)


@contextlib.contextmanager
def launch(blocks: Sequence[Expr], threads: Sequence[int]) -> Iterator[tuple[Expr, ...]]:
    """Start a grid of `blocks` (x, y) groups of `threads` (x, y); returns their int32 indices,
    blocks first.

    A grid with a size of 0 does nothing. That needs a condition: TVM's CUDA and Metal runtimes turn
    such a size into 1.
    """
    with contextlib.ExitStack() as stack:
        for size in blocks:
            if not isinstance(size, int):
                stack.enter_context(when(size > 0))
        found = []
        for kind, sizes in (("blockIdx", blocks), ("threadIdx", threads)):
            for axis, size in zip("xy", sizes, strict=False):
                index = stack.enter_context(T.launch_thread(f"{kind}.{axis}", size))
                found.append(int32(index))
        yield tuple(found)


@contextlib.contextmanager
def when(condition: Expr) -> Iterator[None]:
    """Statements under a condition."""
    with T.If(condition), T.Then():
        yield


class Local:
    """`count` registers of a thread; index with Python ints, or with unrolled loops' variables."""

    def __init__(self, count: int = 1, dtype: str = "float32") -> None:
        # Without a layout: TVM would look through all open loops for its default, which is none.
        self.buffer = T.alloc_buffer((count,), dtype, scope="local", layout=None)

    def __getitem__(self, i: Expr) -> Expr:
        return self.buffer[i]

    def __setitem__(self, i: Expr, value: Expr) -> None:
        store(self.buffer, value, i)


def zeros(count: int, value: float = 0.0) -> Local:
    """Registers that start at `value`."""
    cells = Local(count)
    for i in range(count):
        cells[i] = real(value)
    return cells


def bind(x: Expr) -> Expr:
    """Emit the computation of x once, and return its value.

    Not by T.bind: TVM's simplifier unfolds such variables while it analyses, in exponential time.
    """
    cell = Local(1, str(x.ty.dtype))
    cell[0] = x
    return cell[0]


def shared(shape: Sequence[int], dtype: str = "float32") -> Any:
    """A buffer that the threads of a workgroup share."""
    return T.alloc_buffer(tuple(shape), dtype, scope="shared")


def barrier() -> None:
    """Synchronise all threads of a workgroup, with their writes to shared memory.

    Must be reached by all of them: never under a condition that differs between threads.
    """
    T.evaluate(T.tvm_storage_sync("shared"))


Combine = Callable[[Expr, Expr], Expr]


def add(a: Expr, b: Expr) -> Expr:
    """Combiner for `reduce`."""
    return a + b


def largest(a: Expr, b: Expr) -> Expr:
    """Combiner for `reduce`."""
    return T.max(a, b)


def reduce(
    gpu: Gpu, value: Expr, combine: Combine, lane: Expr, size: int, team: Expr = 0, teams: int = 1
) -> Expr:
    """Combine `value` over the `size` (a power of two) lanes of each team; every lane gets it.

    A workgroup is teams * size threads, thread = team * size + lane. Contains barriers.
    The order of combination is fixed by `size` and the row, so results repeat to the bit.
    """
    dtype = str(value.ty.dtype)
    if size == 1:
        return bind(value)
    if gpu.subgroup and size <= gpu.subgroup:
        return _shuffled(gpu, value, combine, lane, size, team)
    if gpu.subgroup and size <= gpu.subgroup**3:
        return _two_levels(gpu, value, combine, lane, size, team, teams)
    cells = shared((teams * size,), dtype)
    first = team * size
    store(cells, value, first + lane)
    barrier()
    half = size // 2
    while half:
        with when(lane < half):
            store(cells, combine(cells[first + lane], cells[first + lane + half]), first + lane)
        barrier()
        half //= 2
    result = bind(cells[first])
    barrier()  # so that the cells may be written again
    return result


def _shuffled(gpu: Gpu, value: Expr, combine: Combine, lane: Expr, size: int, team: Expr) -> Expr:
    """Within a subgroup, through registers. By shuffle-down: Metal's generator has no xor, and no
    thread knows its place in a subgroup that may be larger."""
    cell = Local(1, str(value.ty.dtype))
    cell[0] = value
    width, mask = gpu.subgroup, T.uint32(_ALL_LANES)
    half = size // 2
    while half and gpu.larger_subgroups:  # both halves get the sums: nothing is sent back
        after = bind(T.tvm_warp_shuffle_down(mask, cell[0], half, width, width))
        before = bind(T.tvm_warp_shuffle_up(mask, cell[0], half, width, width))
        second = tirx.floormod(tirx.floordiv(lane, half), 2) == 1
        cell[0] = combine(cell[0], T.Select(second, before, after))
        half //= 2
    if gpu.larger_subgroups:
        return cell[0]
    while half:
        other = bind(T.tvm_warp_shuffle_down(mask, cell[0], half, width, width))
        cell[0] = combine(cell[0], other)
        half //= 2
    first = 0 if size == width else tirx.floormod(team * size, width)
    return bind(T.tvm_warp_shuffle(mask, cell[0], first, width, width))


def _two_levels(
    gpu: Gpu, value: Expr, combine: Combine, lane: Expr, size: int, team: Expr, teams: int
) -> Expr:
    width = gpu.subgroup
    parts = size // width
    thread = team * size + lane
    part = _shuffled(gpu, value, combine, tirx.floormod(thread, width), width, 0)
    cells = shared((teams * parts,), str(value.ty.dtype))
    with when(tirx.floormod(thread, width) == 0):
        store(cells, part, tirx.floordiv(thread, width))
    barrier()
    total = Local(1, str(value.ty.dtype))
    first, step = (team * parts, 1)
    if parts > width:  # each thread of a subgroup takes some of them
        first, step = team * parts + tirx.floormod(thread, width), width
    total[0] = cells[first]
    for i in range(step, parts, step):
        total[0] = combine(total[0], cells[first + i])
    barrier()
    if parts > width:
        return _shuffled(gpu, total[0], combine, tirx.floormod(thread, width), width, 0)
    return total[0]
