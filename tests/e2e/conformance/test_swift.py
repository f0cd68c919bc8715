"""Every vector through Swift, in a program of the package `Mlcc`.

Requests are sent by `Engine.send`, and a bridge speaks HTTP for the program, which starts once.
Python finds nothing but the standard library and mlcc's zip: the tokenizer is Swift's, which asks
the test. By default one vector of each of ten topics runs, with --long all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conformance.conftest import running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load
from tests.helpers.mobile.c_bridge import bridge
from tests.helpers.mobile.swift_package import Package

SHORT = (
    "answers",
    "cancel",
    "fields",
    "http",
    "messages",
    "responses",
    "stop",
    "streaming",
    "tools",
    "unicode",
)
"""Topics whose first vector runs by default."""


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest,
    swift_package: Package,
    compiled_demo: Callable[[str, str], Path],
) -> Iterator[Runner]:
    model = compiled_demo("f32", "cpu")
    program = swift_package.program("mlcc-relay", folders=[model])
    with bridge(program, model) as url, running(request, url) as started:
        yield started


def vectors() -> Iterator[object]:
    """Those of C; all but the first of the short topics are long."""
    begun: set[str] = set()
    for vector in load():
        if not vector.fits("c"):
            continue
        is_short = vector.topic in SHORT and vector.topic not in begun
        begun.add(vector.topic)
        marks = () if is_short else (pytest.mark.long,)
        yield pytest.param(vector, id=vector.id, marks=marks)


@pytest.mark.needs("swift")
@pytest.mark.parametrize("vector", vectors())
def test_through_swift(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
