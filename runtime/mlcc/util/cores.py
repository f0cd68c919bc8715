"""How many cores this process may compute on: those of its affinity, within its container's quota.

Two kernels on one core share its multipliers and its caches; they are no faster than one and wait
for each other, so hardware threads beside the first of a core are not counted. Read anew with each
question: whoever starts the process may change all of it. Where Linux's files are not there (macOS,
Windows), what Python knows is all.
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
    """Physical cores of the same. `root` is where the system's files are: / but in tests."""
    cpus = _affinity()
    firsts = {_first_of_core(cpu, root) for cpu in cpus}
    return _within_quota(len(firsts), root)


def _affinity() -> frozenset[int]:
    ask = getattr(os, "sched_getaffinity", None)
    return frozenset(ask(0) if ask else range(os.cpu_count() or 1))


def _first_of_core(cpu: int, root: Path) -> int:
    """The least number among the hardware threads of a CPU's core; its own if that is not told."""
    told = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:  # as in 0,64 or 0-1
        return int(told.read_text().replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return cpu


def _within_quota(cores: int, root: Path) -> int:
    """Whole cores of the least quota that binds this process."""
    return max(1, min([cores, *(int(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Cores' worth of time that the process's control groups allow, its own and those above."""
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
    """Folders of the control groups that this process is in. In a container /proc may name a path
    of the host's that is not there; the mount is then the container's own group."""
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
