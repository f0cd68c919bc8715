"""CPU detection: instruction set, features and vendor; requests permission for AMX on Linux.

Reads /proc/cpuinfo, the auxiliary vector on arm64, and what `apple` and `windows` ask. The only
module of mlcc that `mlcc_targets` imports.
"""

from __future__ import annotations

import errno
import platform
import re
import sys
from functools import cache
from pathlib import Path

_ALIASES = {  # LLVM's name -> what Linux or macOS may call it, both without punctuation
    "sse3": {"pni"}, "lzcnt": {"abm"}, "bmi": {"bmi1"}, "pclmul": {"pclmulqdq"}, "x87": {"fpu"},
    "rdrnd": {"rdrand"}, "sahf": {"lahflm"}, "sha": {"shani"}, "64bit": {"lm", "em64t"},
    "crc32": {"sse42"}, "avx": {"avx10"}, "neon": {"asimd", "advsimd"}, "dotprod": {"asimddp"},
    "fullfp16": {"asimdhp", "fp16"}, "fparmv8": {"fp", "floatingpoint"}, "lse": {"atomics"},
}  # fmt: skip
_HWCAPS = {  # of arm64: names of the bits of AT_HWCAP and AT_HWCAP2, as /proc/cpuinfo spells them
    16: "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg",
    26: "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm "
    "svef64mm svebf16 i8mm bf16 dgh rng bti mte",
}
ABIS = {"aarch64": "arm64-v8a", "x86_64": "x86_64"}
"""Instruction set -> what Android calls it."""
IOS, SIMULATOR = "iOS", "iOS simulator"


def missing_features(needed: tuple[str, ...], present: frozenset[str]) -> tuple[str, ...]:
    """The needed features (LLVM's spelling) that are not among `present` (as `cpu_features`)."""
    return tuple(name for name in needed if not _names(name) & present)


@cache
def cpu_features() -> frozenset[str]:
    """This CPU's features in lower case without punctuation; empty if they cannot be read."""
    try:
        words = {
            "Linux": _linux_words,
            "Android": _linux_words,
            "Darwin": _apple_words,
            IOS: _apple_words,
            SIMULATOR: _apple_words,
            "Windows": _windows_words,
        }[system()]()
    except (KeyError, OSError):
        return frozenset()
    return frozenset(_plain(word) for word in words)


@cache
def cpu_vendor() -> str:
    """The CPU vendor as CPUID spells it (GenuineIntel); "" = unknown."""
    if system() == "Windows" and machine() == "x86_64":
        from mlcc.util import windows

        return windows.cpu_vendor()
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""
    match = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def allow_tiles() -> int:
    """Request AMX tiles from Linux for all present and future threads of this process. Returns 0 or
    an errno; idempotent. (Linux documentation: "Using XSTATE features".)"""
    import ctypes  # imported late: rarely needed

    if sys.platform != "linux":
        return errno.ENOSYS
    arch_prctl, request_permission, tiles = 158, 0x1023, 18
    ask = ctypes.CDLL(None, use_errno=True).syscall
    arguments = [ctypes.c_long(n) for n in (arch_prctl, request_permission, tiles)]
    return ctypes.get_errno() if ask(*arguments) else 0


def machine() -> str:
    """This machine's instruction set: x86_64, aarch64, or what Python calls it."""
    name = platform.machine().lower()
    if sys.platform == "ios":  # where it is the model of the phone
        from mlcc.util import apple

        name = apple.ios_build().partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def system() -> str:
    """This machine's system: Linux, Android, Darwin, Windows, IOS (iPads, too), SIMULATOR, or what
    Python calls it."""
    if sys.platform == "ios":
        from mlcc.util import apple

        return SIMULATOR if apple.ios_build().endswith("simulator") else IOS
    return "Android" if hasattr(sys, "getandroidapilevel") else platform.system()


def _linux_words() -> list[str]:
    if machine() == "aarch64" and (words := _arm64_words()):
        return words
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return match.group(1).split() if match else []


def _arm64_words() -> list[str]:
    """Features by getauxval: under an emulator /proc/cpuinfo describes another CPU."""
    import ctypes  # late: only arm64 needs it

    try:
        ask = ctypes.CDLL(None).getauxval
    except (OSError, AttributeError):
        return []
    ask.restype = ctypes.c_ulong
    found = ((ask(ctypes.c_ulong(kind)), names) for kind, names in _HWCAPS.items())
    return [name for bits, names in found for i, name in enumerate(names.split()) if bits >> i & 1]


def _apple_words() -> list[str]:
    from mlcc.util import apple

    return apple.cpu_words()


def _windows_words() -> list[str]:
    if machine() != "x86_64":
        return []
    from mlcc.util import windows

    return windows.cpu_words()


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _names(feature: str) -> set[str]:
    plain = _plain(feature)
    return {plain} | _ALIASES.get(plain, set())
