"""How many connections the system's limit on open files allows. Not known on Windows, which has
none of the kind.
"""

from __future__ import annotations

from contextlib import suppress

BACKLOG = 128
"""Connections that the system may hold for us; asyncio takes as many in one go."""
_OTHERS = 64
"""For files, pipes and libraries."""


def affordable(connections: int) -> int:
    """As many of so many connections as there are descriptors for. The limit is raised first, as
    far as this process may."""
    try:
        import resource
    except ImportError:
        return connections
    wanted = connections + BACKLOG + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):  # macOS has a lower limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return max(1, min(connections, soft - BACKLOG - _OTHERS))
