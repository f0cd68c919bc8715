"""What only Windows can answer, asked of kernel32 through ctypes. Imported on Windows alone."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

_CPUID = bytes.fromhex("5389c889d10fa241890041895804418948084189500c5bc3")
"""void cpuid(leaf, subleaf, uint32 out[4]) in Microsoft's calling convention: push rbx;
mov eax,ecx; mov ecx,edx; cpuid; mov [r8],eax; mov [r8+4],ebx; mov [r8+8],ecx; mov [r8+12],edx;
pop rbx; ret."""
_EAX, _EBX, _ECX, _EDX = range(4)
_BITS: Mapping[tuple[int, int, int], Mapping[int, str]] = {
    (1, 0, _ECX): {0: "pni", 9: "ssse3", 12: "fma", 13: "cx16", 19: "sse4_1", 20: "sse4_2",
                   22: "movbe", 23: "popcnt", 28: "avx", 29: "f16c"},
    (7, 0, _EBX): {3: "bmi1", 5: "avx2", 8: "bmi2", 16: "avx512f", 17: "avx512dq",
                   28: "avx512cd", 30: "avx512bw", 31: "avx512vl"},
    (7, 0, _ECX): {1: "avx512vbmi", 11: "avx512_vnni"},
    (7, 1, _EAX): {4: "avx_vnni", 5: "avx512_bf16"},
    (0x80000001, 0, _ECX): {0: "lahf_lm", 5: "abm"},
}  # fmt: skip
"""(leaf, subleaf, register) -> bit -> name, as Linux spells it (Intel SDM, volume 2, CPUID). Tiles
are left out: a process must ask Windows for them, which mlcc does not."""
_SAVED = {39: ("avx", "fma", "f16c"), 41: ("avx512",)}
"""IsProcessorFeaturePresent's numbers for the registers that the system saves -> the start of the
names of features that need them: AVX's, and AVX-512's."""
_COMMIT, _READ_WRITE, _RUN, _RELEASE = 0x3000, 0x04, 0x20, 0x8000
_SYNCHRONIZE, _MODIFY_EVENT, _RUNNING = 0x100000, 0x0002, 0x102


@cache
def _kernel32() -> Any:
    library = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    for name in ("VirtualAlloc", "OpenProcess", "CreateEventW", "OpenEventW"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def _cpuid(leaf: int, subleaf: int) -> list[int]:
    """The four registers of the instruction."""
    kernel32 = _kernel32()
    address: int = kernel32.VirtualAlloc(None, len(_CPUID), _COMMIT, _READ_WRITE)
    code = ctypes.c_void_p(address)
    found = (ctypes.c_uint32 * 4)()
    try:
        ctypes.memmove(code, _CPUID, len(_CPUID))
        kernel32.VirtualProtect(code, len(_CPUID), _RUN, ctypes.byref(ctypes.c_uint32()))
        of = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
        of(address)(leaf, subleaf, found)
    finally:
        kernel32.VirtualFree(code, 0, _RELEASE)
    return list(found)


def cpu_words() -> list[str]:
    """Features of an x86-64 CPU that the system lets programs use."""
    most = {0: _cpuid(0, 0)[_EAX], 0x80000000: _cpuid(0x80000000, 0)[_EAX]}
    found = []
    for (leaf, subleaf, register), names in _BITS.items():
        if leaf <= most[leaf & 0x80000000]:
            bits = _cpuid(leaf, subleaf)[register]
            found += [name for bit, name in names.items() if bits >> bit & 1]
    saved = _kernel32().IsProcessorFeaturePresent
    lost = tuple(
        start for number, starts in _SAVED.items() if not saved(number) for start in starts
    )
    return [name for name in found if not name.startswith(lost)] if lost else found


def cpu_vendor() -> str:
    """As CPUID spells it."""
    registers = _cpuid(0, 0)
    letters = [registers[i].to_bytes(4, "little") for i in (_EBX, _EDX, _ECX)]
    return b"".join(letters).decode("ascii", "replace")


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = [("size", ctypes.c_uint32), ("load", ctypes.c_uint32)]
    _fields_ += [("all", ctypes.c_uint64), ("available", ctypes.c_uint64)]
    _fields_ += [("rest", ctypes.c_uint64 * 5)]


def available_bytes() -> int | None:
    """Physical memory that is free, or can be freed at once."""
    status = _MemoryStatus(size=ctypes.sizeof(_MemoryStatus))
    if not _kernel32().GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.available)


def runs(pid: int) -> bool:
    """Whether a process runs. (`os.kill(pid, 0)` would send it Ctrl-C.)"""
    kernel32 = _kernel32()
    process = ctypes.c_void_p(kernel32.OpenProcess(_SYNCHRONIZE, False, pid))
    if not process:
        return False
    try:
        return bool(kernel32.WaitForSingleObject(process, 0) == _RUNNING)
    finally:
        kernel32.CloseHandle(process)


@contextmanager
def stoppable() -> Iterator[None]:
    """While inside, `stop` of another process raises SIGTERM in this one. (`os.kill` would end it
    at once.)"""
    kernel32, ended = _kernel32(), threading.Event()
    event = ctypes.c_void_p(kernel32.CreateEventW(None, True, False, _event(os.getpid())))

    def wait() -> None:
        kernel32.WaitForSingleObject(event, 0xFFFFFFFF)
        if not ended.is_set():
            signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=wait, name="mlcc-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        kernel32.SetEvent(event)
        thread.join()
        kernel32.CloseHandle(event)


def stop(pid: int) -> bool:
    """Ask a process that is `stoppable` to end; False if there is none."""
    kernel32 = _kernel32()
    event = ctypes.c_void_p(kernel32.OpenEventW(_MODIFY_EVENT, False, _event(pid)))
    if not event:
        return False
    kernel32.SetEvent(event)
    kernel32.CloseHandle(event)
    return True


def _event(pid: int) -> str:
    """Of this session: other users have another one."""
    return f"Local\\mlcc-stop-{pid}"
