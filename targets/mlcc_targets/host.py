"""Which CPU features this machine has, in LLVM's spelling. Reads files; runs nothing but sysctl."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path

_LINUX_NAMES = {
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
}
_WINDOWS_X86 = frozenset({"avx2", "fma", "f16c"})


def machine() -> str:
    """This machine's instruction set: 'x86_64', 'aarch64' or what Python calls it."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


@cache
def cpu_features() -> frozenset[str]:
    """The features of the CPU this runs on; a conservative set where they cannot be read."""
    system = platform.system()
    if system == "Linux":
        return _linux_features(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    if machine() == "aarch64":
        return frozenset({"neon", "dotprod", "fullfp16"})  # every Apple chip; Windows on Arm too
    return _mac_x86_features() if system == "Darwin" else _WINDOWS_X86


def _linux_features(cpuinfo: str) -> frozenset[str]:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            return frozenset(_LINUX_NAMES.get(flag, flag) for flag in value.split())
    return frozenset()


def _mac_x86_features() -> frozenset[str]:
    keys = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
    command = ["/usr/sbin/sysctl", "-n", *keys]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return frozenset(flag.lower().replace(".", "") for flag in output.split())
