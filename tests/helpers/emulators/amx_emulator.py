"""AMX in tests: the CPU's own, or an emulator that handles the traps of a CPU without AMX.

The emulator (`amx_emulator.c`) is compiled once per test run, by zig.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlcc.util.machine import allow_tiles, cpu_features, machine, missing_features
from mlcc_targets.cpu import level
from mlcc_targets.linking.linker import run_zig
from mlcc_targets.linking.native_library import link_for

NEEDS = level("avx512-amx").features
TILES = ("amx-tile", "amx-bf16", "amx-int8")


@dataclass
class Counts:
    """Counts of the emulator; zeros on a CPU with AMX."""

    emulated: bool
    begun: int = 0
    released: int = 0
    products: int = 0
    faults: int = 0

    def check(self, products: int) -> None:
        """Check the number of products, that no instruction was invalid, and that all threads
        released their tiles."""
        if self.emulated:
            assert (self.products, self.faults) == (products, 0)
            assert self.begun == self.released


def runs_here() -> bool:
    """Whether all but AMX is the CPU's, on a system whose traps are known."""
    rest = tuple(name for name in NEEDS if name not in TILES)
    linux = sys.platform == "linux" and machine() == "x86_64"
    return linux and not missing_features(rest, cpu_features())


def emulated() -> bool:
    """Whether AMX is emulated: this CPU lacks it."""
    return bool(missing_features(TILES, cpu_features()))


@contextmanager
def tiles() -> Iterator[Counts]:
    """Code within it may use AMX; the counts are filled in at the end."""
    counts = Counts(emulated())
    if not counts.emulated:
        assert allow_tiles() == 0
        yield counts
        return
    assert _emulator().amx_begin() == 0
    try:
        yield counts
    finally:
        found = _emulator().amx_end()
        counts.begun, counts.released, counts.products, counts.faults = found[:4]


@cache
def _emulator() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        made, library_path = (Path(folder) / name for name in ("amx.o", "amx.so"))
        words = ["cc", "-O2", "-mfma", "-mavx2", "-fno-sanitize=all", "-Wall", "-Werror", "-fPIC"]
        run_zig([*words, "-c", "-o", str(made), str(Path(__file__).with_suffix(".c"))], made)
        link_for("x86_64")([made], library_path)
        library = ctypes.CDLL(str(library_path))
    library.amx_end.restype = ctypes.POINTER(ctypes.c_uint64)
    return library
