"""Building blocks of sampling: floats as ordered integers (keys), safe exponentials, and sums of a
workgroup by bin.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, real, shared, when

NO_KEY = 0x007FFFFF
"""The key of -inf and NaN; no number has a smaller one."""
INFINITY = 0xFF800000
"""The key of infinity."""
_SIGN = 0x80000000
EXP_UNDERFLOW = -104.0
"""e ** x is 0 in float32 below this."""
_LEAST_TEMPERATURE = 1e-36  # its inverse is finite


def ordered_bits(x: Expr) -> Expr:
    """A uint32 key that orders as the floats do; -0 counts as 0, NaN as -inf.

    In integers throughout: WGSL, and Metal's fast mathematics, guarantee nothing for NaN or
    infinity.
    """
    bits = bind(T.reinterpret("uint32", x))
    size = bind(T.bitwise_and(bits, T.uint32(_SIGN - 1)))
    ordered = T.Select(bits == size, T.bitwise_or(bits, T.uint32(_SIGN)), T.bitwise_not(bits))
    ordered = T.Select(size == T.uint32(0), T.uint32(_SIGN), ordered)
    return bind(T.Select(size > T.uint32(INFINITY - _SIGN), T.uint32(NO_KEY), ordered))


def logit(key: Expr) -> Expr:
    """The number of a key."""
    positive = key >= T.uint32(_SIGN)
    bits = T.Select(positive, T.bitwise_xor(key, T.uint32(_SIGN)), T.bitwise_not(key))
    return bind(T.reinterpret("float32", bits))


def safe_exp(power: Expr) -> Expr:
    """e ** power for power <= 0, clamped so that no driver's exponential misbehaves."""
    return T.exp(bind(T.max(power, real(EXP_UNDERFLOW))))


def inverse_of(temperature: Expr) -> Expr:
    """1 / temperature; finite for every temperature."""
    return bind(real(1) / T.max(temperature, real(_LEAST_TEMPERATURE)))


class BinSums:
    """Sums over the threads of a workgroup of `count` values of each.

    The order of addition is fixed by the number of threads alone: results repeat to the bit, and
    every thread gets the same. float32; counts below 2**24 are exact.
    """

    def __init__(self, gpu: Gpu, count: int, thread: Expr) -> None:
        self.count, self.thread = count, thread
        self.half = gpu.threads // 2
        lanes = 1 << (count - 1).bit_length()
        self.slices = gpu.threads // lanes
        """Threads that share out the columns of one value."""
        self.cells = shared((count, self.half))
        self.parts = shared((count, self.slices))
        self.totals = shared((count,))

    def emit(self, values: Local, needed: Expr) -> None:
        """Put the sums of `values` into `totals`, if `needed` (the same in all threads), valid
        until the next call; `values` is overwritten. Contains barriers."""
        half, thread = self.half, self.thread
        with when(tirx.all(needed, thread >= half)):
            for i in range(self.count):
                store(self.cells, values[i], i, thread - half)
        barrier()
        with when(tirx.all(needed, thread < half)):
            for i in range(self.count):
                values[i] = values[i] + self.cells[i, thread]
        barrier()  # TVM sees a race in reading and writing a buffer between two barriers
        with when(tirx.all(needed, thread < half)):
            for i in range(self.count):
                store(self.cells, values[i], i, thread)
        barrier()
        value, piece = bind(thread // self.slices), bind(thread % self.slices)
        with when(tirx.all(needed, value < self.count)):
            total = Local()
            total[0] = real(0)
            with T.serial(half // self.slices) as k:
                total[0] = total[0] + self.cells[value, k.astype("int32") * self.slices + piece]
            store(self.parts, total[0], value, piece)
        barrier()
        with when(tirx.all(needed, thread < self.count)):
            total = Local()
            total[0] = real(0)
            with T.serial(self.slices) as k:
                total[0] = total[0] + self.parts[thread, k.astype("int32")]
            store(self.totals, total[0], thread)
        barrier()  # the next call writes the totals only after four more
