"""Which processes are Ray's, and below whom: what tests kill, and what must be gone in the end."""

from __future__ import annotations

from pathlib import Path

RAYS = (b"ray::", b"raylet", b"gcs_server")
"""Beginnings of what Ray's processes call themselves."""


def command_of(pid: int) -> bytes:
    """What a process calls itself; nothing if it is gone."""
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


def replicas_below(root: int, deployment: bytes = b"ServeReplica") -> list[int]:
    """Those of them that are replicas of Ray Serve's, of a deployment."""
    names = {pid: command_of(pid) for pid in below(root)}
    return [p for p, name in names.items() if b"ServeReplica" in name and deployment in name]
