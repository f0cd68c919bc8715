"""Finds the Linux systems that a shared library runs on, as the platform tag of its wheel.

Reads the versions of functions that a library requires of glibc and of GCC's C++ library (ELF64,
little-endian). The tags are those of PEP 600.
"""

from __future__ import annotations

import struct
from pathlib import Path

_VERNEED = 0x6FFFFFFE
_CXX = {  # glibc of a system -> versions of its GCC's library, in both name spaces
    (2, 17): ((3, 4, 19), (1, 3, 7)),
    (2, 28): ((3, 4, 24), (1, 3, 11)),
    (2, 31): ((3, 4, 28), (1, 3, 12)),
    (2, 34): ((3, 4, 29), (1, 3, 13)),
    (2, 35): ((3, 4, 30), (1, 3, 13)),
    (2, 38): ((3, 4, 32), (1, 3, 14)),
    (2, 39): ((3, 4, 33), (1, 3, 15)),
}
"""As in auditwheel's policies; first the oldest that zig links for."""


def needed_versions(library: Path) -> frozenset[str]:
    """Names of the versions that a library requires, such as GLIBC_2.34. Raises ValueError."""
    data = library.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library.name} is no 64-bit ELF library")
    table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQII", data, table + i * size) for i in range(count)]
    found = set()
    for _, kind, _, _, at, _, strings, entries in sections:
        if kind != _VERNEED:
            continue
        names = sections[strings][4]
        for _ in range(entries):  # one entry per library, each with a list of versions
            _, versions, _, first, following = struct.unpack_from("<HHIII", data, at)
            one = at + first
            for _ in range(versions):
                _, _, _, name, step = struct.unpack_from("<IHHII", data, one)
                start = names + name
                found.add(data[start : data.index(b"\0", start)].decode())
                one += step
            at += following
    return frozenset(found)


def tag(needed: frozenset[str], arch: str) -> str:
    """The platform tag of the oldest system that has all of `needed`. Raises ValueError."""
    glibc, cxx, abi = (_newest(needed, name) for name in ("GLIBC", "GLIBCXX", "CXXABI"))
    for system, (most_cxx, most_abi) in _CXX.items():
        if glibc <= system and cxx <= most_cxx and abi <= most_abi:
            return f"manylinux_{system[0]}_{system[1]}_{arch}"
    raise ValueError(f"no manylinux tag covers {', '.join(sorted(needed))}")


def _newest(needed: frozenset[str], name: str) -> tuple[int, ...]:
    numbers = (v.removeprefix(f"{name}_") for v in needed if v.startswith(f"{name}_"))
    return max((tuple(map(int, number.split("."))) for number in numbers), default=())
