"""Finds Ray's processes: tests kill them, and check that they end."""

from __future__ import annotations

from tests.helpers.processes import below, command_of

RAYS = (b"ray::", b"raylet", b"gcs_server")
"""Prefixes of the names of Ray's processes."""


def replicas_below(root: int, deployment: bytes = b"ServeReplica") -> list[int]:
    """Processes below a process that are replicas of a Ray Serve deployment."""
    names = {pid: command_of(pid) for pid in below(root)}
    return [p for p, name in names.items() if b"ServeReplica" in name and deployment in name]
