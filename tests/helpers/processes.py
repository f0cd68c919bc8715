"""Processes and their children, from Linux's /proc: tests kill them, and check that they end."""

from __future__ import annotations

from pathlib import Path


def command_of(pid: int) -> bytes:
    """The name of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def below(root: int) -> list[int]:
    """All processes that a process has started, and these have."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
    found, level = [], [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found
