"""How many connections the system's limit on open files allows, and how often strangers cause a
log line."""

from __future__ import annotations

import resource
from types import SimpleNamespace

import pytest

from mlcc.server.http import connection
from mlcc.server.http.connection import _OTHERS, BACKLOG, LogThrottle, affordable_connections

RESERVED = BACKLOG + _OTHERS
UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "found", "raised"),
    [
        (RESERVED + 100, UNLIMITED, 100, None),
        (UNLIMITED, UNLIMITED, 100, None),
        (RESERVED + 99, UNLIMITED, 100, RESERVED + 100),
        (50, RESERVED + 200, 100, RESERVED + 100),
        (50, RESERVED + 36, 36, RESERVED + 36),
        (10, 20, 1, 20),
    ],
)
def test_open_files_bound_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, found: int, raised: int | None
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    assert affordable_connections(100) == found
    assert limits == ([] if raised is None else [(raised, hard)])


def test_a_limit_that_cannot_be_raised_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: int, pair: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (RESERVED + 7, UNLIMITED))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert affordable_connections(100) == 7


def test_one_line_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now[0]))
    throttle = LogThrottle(60)
    assert throttle() and not throttle()
    now[0] = 159.5
    assert not throttle()
    now[0] = 160.0
    assert throttle() and not throttle()
