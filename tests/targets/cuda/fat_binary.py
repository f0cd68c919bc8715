"""Parses NVIDIA's fat binaries: a magic number, a header, then entries of machine code or PTX, each
with a header that gives kind, sizes and architecture."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_MAGIC = 0xBA55ED50
_KINDS = {1: "ptx", 2: "sm"}


def entries(data: bytes) -> list[tuple[str, bytes]]:
    """(as in "sm_90" or "ptx_90", its bytes) for every entry of every fat binary in `data`."""
    magic, found, at = struct.pack("<I", _MAGIC), [], 0
    while (at := data.find(magic, at)) >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        found += _of_one(data, at + header, at + header + size)
        at += header + size
    return found


def _of_one(data: bytes, at: int, end: int) -> Iterator[tuple[str, bytes]]:
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        (arch,) = struct.unpack_from("<I", data, at + 28)
        yield f"{_KINDS[kind]}_{arch}", data[at + header : at + header + size]
        at += header + size
