"""Every vector through Kotlin, in a JVM with the JARs alone.

Native parts and Python come from mlcc-jvm's JAR, and the tokenizer is DJL's, as in an app; requests
are sent by `Engine.request`. A bridge speaks HTTP for the program, which starts once.
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
@pytest.mark.parametrize("vector", [v for v in load() if v.fits("c")], ids=lambda v: v.id)
def test_through_kotlin(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
