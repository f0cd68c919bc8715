"""Free memory of this machine and of its devices, within a container's limit.

Reads the system's figures; allocates nothing. How a model is fitted into it is decided by
`mlcc.model.memory.planner`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from mlcc.util.fast_dataclass import fast_dataclass

RESERVE_BYTES = 256 << 20
"""Left for Python, the server and the system."""


@fast_dataclass(frozen=True)
class DeviceMemory:
    """Memory that a device offers to a model; None = unknown, which means unchecked."""

    free_bytes: int | None = None
    """For weights, workspace and caches together."""
    tensor_bytes: int | None = None
    """The largest tensor: WebGPU bounds the size of a kernel's argument."""
    source: str = ""
    """Where `free_bytes` (spelled {}) comes from, if it is not the memory that is free."""
    reserve_bytes: int = RESERVE_BYTES
    """The part of `free_bytes` that stays unused."""
    mapped: bool = False
    """Whether kernels read weights in place from memory-mapped files
    (`mlcc.model.memory.expert_offload`)."""

    def per_rank(self, ranks: int) -> DeviceMemory:
        """The share of each of several processes that compute a model together."""
        if self.free_bytes is None or ranks == 1:
            return self
        return replace(
            self,
            free_bytes=self.free_bytes // ranks,
            reserve_bytes=self.reserve_bytes // ranks,
            source=(self.source or "{} of memory are free") + f" for each of {ranks} ranks",
            mapped=False,
        )


UNKNOWN_MEMORY = DeviceMemory()


def available_bytes() -> int | None:
    """Bytes available now without swapping, within the container's limit; None = unknown."""
    if sys.platform == "win32":
        from mlcc.util import windows

        return windows.available_bytes()
    if sys.platform in ("darwin", "ios"):
        from mlcc.util import apple

        return apple.available_bytes()
    found = [b for b in (_meminfo(), container_bytes(), _sysconf()) if b is not None]
    return min(found) if found else None


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


def container_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes left to the container by cgroup version 2 or 1; None = no limit is known.

    Cached files (such as weights that were just hashed) count as free: the kernel counts them as
    used but evicts them when a process needs the memory.
    """
    v1 = folder / "memory"
    for limit, used, stat, prefix in (
        (folder / "memory.max", folder / "memory.current", folder / "memory.stat", ""),
        (v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat", "total_"),
    ):
        try:
            most, taken = int(limit.read_text()), int(used.read_text())
        except (OSError, ValueError):  # not this version, or "max"
            continue
        cached = _cached(stat, (f"{prefix}inactive_file", f"{prefix}active_file"))
        return max(0, most - max(0, taken - cached))
    return None


def _cached(stat: Path, names: tuple[str, ...]) -> int:
    try:
        rows = [line.split() for line in stat.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in names)


def _sysconf() -> int | None:
    """All physical memory: some systems do not report how much is free."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
