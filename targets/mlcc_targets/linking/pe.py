"""Links libraries for Windows, with MinGW's C library as zig brings it."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linking.linker import run_zig
from mlcc_targets.target import TargetError

_RAISE = Path(__file__).with_name("raise_parts.c")
TARGETS = {"x86_64": "x86_64-windows-gnu"}
_OF_HEADER, _OF_TIME = 0x3C, 8
"""Where the place of the header is, and the time in that."""
_FLAGS = ("-shared", "-s", "-O2", "-g0", "-fno-sanitize=all", "-fno-stack-protector")


def link_dll(objects: Sequence[Path], library: Path, arch: str) -> None:
    """Link TVM's objects into a DLL that needs the system's C library alone. Raises TargetError."""
    if arch not in TARGETS:
        raise TargetError(f"no Windows libraries for '{arch}'; use one of: {', '.join(TARGETS)}")
    words = ["cc", "-target", TARGETS[arch], *_FLAGS, *map(str, objects), str(_RAISE)]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / library.name  # beside it zig writes an import library
        run_zig([*words, "-o", str(made)], library, _cache())
        clear_time(made)
        shutil.copyfile(made, library)


def clear_time(made: Path) -> None:
    """Set the time of a PE file to zero: the linker writes when it ran (Microsoft's PE format,
    "COFF File Header")."""
    data = bytearray(made.read_bytes())
    (start,) = struct.unpack_from("<I", data, _OF_HEADER)
    struct.pack_into("<I", data, start + _OF_TIME, 0)
    made.write_bytes(data)


def _cache() -> Path:
    """Where zig keeps the C library that it compiled, which takes half a minute."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "zig"
