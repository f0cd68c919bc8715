"""The number of cores this process may use: its CPU affinity, within its container's quota.

Hardware threads of one core share its multipliers and caches and would wait for each other, so only
one per core counts. Values are read at every call, since they may change. Without Linux's files
(macOS, Windows) only Python's own count is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def usable_threads(root: Path = _ROOT) -> int:
    """Hardware threads of this process's affinity, within its quota; at least 1."""
    return _within_quota(len(_affinity()), root)


def usable_cores(root: Path = _ROOT) -> int:
    """Physical cores of this process's affinity, within its quota. root: / except in tests."""
    cpus = _affinity()
    firsts = {_first_of_core(cpu, root) for cpu in cpus}
    return _within_quota(len(firsts), root)


def _affinity() -> frozenset[int]:
    ask = getattr(os, "sched_getaffinity", None)
    return frozenset(ask(0) if ask else range(os.cpu_count() or 1))


def _first_of_core(cpu: int, root: Path) -> int:
    """The lowest-numbered hardware thread of a CPU's core; the CPU itself if unknown."""
    siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:  # as in 0,64 or 0-1
        return int(siblings.read_text().replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return cpu


def _within_quota(cores: int, root: Path) -> int:
    """`cores`, capped at the whole cores of the smallest quota of this process."""
    return max(1, min([cores, *(int(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """The CPU quotas, in cores, of the process's control groups and their parents."""
    for folder in _groups(root):
        try:
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
            else:  # of the first version
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                quota, period = ((folder / name).read_text() for name in names)
            if int(quota) > 0 and int(period) > 0:
                yield int(quota) / int(period)
        except (OSError, ValueError):  # no such file, or "max"
            continue


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups of this process. In a container /proc may name a path of the
    host that does not exist; the mount point is then the container's own group."""
    mount = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        number, kinds, path = [*line.split(":", 2), "", ""][:3]
        if number != "0" and "cpu" not in kinds.split(","):
            continue
        of_kind = mount if number == "0" else mount / "cpu"
        group = Path(os.path.normpath("/" + path.lstrip("/"))).relative_to("/")
        yield from (of_kind / each for each in (group, *group.parents))
