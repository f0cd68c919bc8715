"""Vectors through Kotlin, in a JVM with the JARs alone.

Native parts and Python come from mlcc-jvm's JAR, and the tokenizer is DJL's, as in an app; requests
are sent by `Engine.request`. A bridge speaks HTTP for the program, which starts once. By default
all of the topics that Kotlin has a part in, and two of each other topic, whose bodies Kotlin passes
on: `test_c.py` runs all through the C library below. With --long all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conformance.conftest import running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load
from tests.helpers.mobile.c_bridge import bridge
from tests.helpers.mobile.kotlin_package import Package

TOPICS = {
    *("batching", "cancel", "http", "long", "messages", "scheduling", "shapes", "stop"),
    *("streaming", "tokens", "unicode", "usage"),
}
"""Topics of tokens, bytes, pieces of answers, several requests at once, and their end."""


def vectors() -> Iterator[object]:
    """Those of C. Of other topics than those above, the first that computes and the first that
    does not are not long."""
    begun: set[tuple[str, bool]] = set()
    for vector in load():
        if not vector.fits("c"):
            continue
        kind = (vector.topic, vector.computes)
        is_short = vector.topic in TOPICS or kind not in begun
        begun.add(kind)
        yield pytest.param(vector, id=vector.id, marks=() if is_short else (pytest.mark.long,))


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest,
    kotlin_package: Package,
    compiled_demo: Callable[[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Runner]:
    cache = tmp_path_factory.mktemp("cache")
    command = kotlin_package.relay(cache)
    with bridge(command, compiled_demo("f32", "cpu")) as url, running(request, url) as started:
        yield started
        assert len(list(cache.iterdir())) == 1  # unpacked once, nothing left beside


@pytest.mark.needs("maven")
@pytest.mark.parametrize("vector", vectors())
def test_through_kotlin(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
