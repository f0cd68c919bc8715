"""What macOS and iOS report of a machine: CPU features by sysctl, and free memory.

By functions of libSystem, since an app may start no programs. Untried on Apple's systems; the
layout of Mach's record is checked against its headers (tests/runtime/util/test_apple.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

_ARM = "DotProd I8MM BF16 FP16 LSE SHA3 SME SME2"
_ONES = (
    "hw.optional.neon",
    "hw.optional.AdvSIMD",
    *(f"hw.optional.arm.FEAT_{name}" for name in _ARM.split()),
)
"""Numbers that are 1 where a CPU has the feature of their last word."""
_LISTS = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
"""Texts of words, on Intel."""
_HOST_VM_INFO64 = 4


class VmStatistics64(ctypes.Structure):
    """`vm_statistics64` of mach/vm_statistics.h; sizes are in pages."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("free", "active", "inactive", "wired")),
        *((f"events_{i}", ctypes.c_uint64) for i in range(9)),
        *((name, ctypes.c_uint32) for name in ("purgeable", "speculative")),
        *((f"swaps_{i}", ctypes.c_uint64) for i in range(4)),
        *((name, ctypes.c_uint32) for name in ("compressor", "throttled", "external", "internal")),
        ("compressed", ctypes.c_uint64),
    ]


def is_ios() -> bool:
    """Whether this is an iPhone, an iPad, or their simulator (PEP 730)."""
    return sys.platform == "ios"


def ios_build() -> str:
    """What Python for iOS was built for: arm64-iphoneos, arm64-iphonesimulator."""
    return str(getattr(sys.implementation, "_multiarch", "arm64-iphoneos"))


@cache
def _system() -> Any:
    return ctypes.CDLL(None)


def cpu_words() -> list[str]:
    """The CPU's features, in the system's words; empty if it does not say."""
    ones = [name.rpartition(".")[2].removeprefix("FEAT_") for name in _ONES if _number(name)]
    return ones + " ".join(map(_text, _LISTS)).split()


def _number(name: str) -> int:
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    found = _ask(name, ctypes.byref(value), ctypes.byref(size))
    return value.value if found else 0


def _text(name: str) -> str:
    size = ctypes.c_size_t(0)
    if not _ask(name, None, ctypes.byref(size)):
        return ""
    text = ctypes.create_string_buffer(size.value + 1)
    return text.value.decode() if _ask(name, text, ctypes.byref(size)) else ""


def _ask(name: str, value: Any, size: Any) -> bool:
    return not _system().sysctlbyname(name.encode(), value, size, None, ctypes.c_size_t(0))


def available_bytes() -> int | None:
    """Bytes that this process can take: on iOS until the system ends it, on macOS what is free or
    was not used lately. None = unknown."""
    if is_ios():
        ask = _system().os_proc_available_memory
        ask.restype = ctypes.c_size_t
        return int(ask()) or None
    found = VmStatistics64()
    count = ctypes.c_uint32(ctypes.sizeof(found) // 4)
    system = _system()
    host = system.mach_host_self()
    if system.host_statistics64(host, _HOST_VM_INFO64, ctypes.byref(found), ctypes.byref(count)):
        return None
    return int(found.free + found.inactive) * os.sysconf("SC_PAGE_SIZE")
