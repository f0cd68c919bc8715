"""How many threads compute a step: TVM's pool, whoever has loaded its runtime, reads it once."""

from __future__ import annotations

import os
from pathlib import Path

from mlcc.errors import InvalidRequestError


def set_threads(threads: int | None) -> int:
    """Fix the number of kernel threads; must be called before a library runs, and before
    anything imports tvm.

    Default: TVM_NUM_THREADS, else the cores this process may use (TVM's own default can be 1).
    Returns the number.
    Raises InvalidRequestError for more than that: waiting threads spin, and starve each other.
    """
    cores = _usable_cores()
    count = threads or min(cores, int(os.environ.get("TVM_NUM_THREADS") or cores))
    if count > cores:
        raise InvalidRequestError(
            f"--threads {count} is more than the {cores} cores this process may use; "
            f"use --threads {cores} or less"
        )
    os.environ["TVM_NUM_THREADS"] = str(count)
    return count


def _usable_cores() -> int:
    """Cores of this process's affinity, within the container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores
