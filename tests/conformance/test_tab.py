"""Vectors against the engine of the browser tab, through a bridge that speaks HTTP for it.

In Chromium, where a page, its service worker and its worker lie in the way: all that answer without
computing or are about connections, and every fourth of the others; all with --long. Node, which
runs the same tab without them, runs those about connections, too. Both compute on SwiftShader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_package import bridge

from conformance.conftest import running
from conformance.runner import Runner
from conformance.vectors import Vector, load

VECTORS = [vector for vector in load() if vector.fits("tab")]
NOT_SEEN = {"cancel/whole-answer-left", "cancel/left-while-reading-a-long-prompt"}
"""Chromium tells a service worker nothing of a fetch that its page gave up before the answer began:
such a request is answered to its end. (`engine.fetch` with a signal ends it, in Node as in a page.)
"""
IN_CHROMIUM = [vector for vector in VECTORS if vector.id not in NOT_SEEN]
ON_THE_WAY = {"batching", "cancel", "http", "streaming"}
"""Topics that a page and its workers could spoil; the others are decided in Python, which answers
the server's vectors too, and in Pyodide as elsewhere (tests/embedded/test_pyodide.py)."""
REPEATED = [v for v in IN_CHROMIUM if v.topic not in ON_THE_WAY and v.computes]
LONG = {vector.id for i, vector in enumerate(REPEATED) if i % 4}
IN_NODE = [vector for vector in VECTORS if vector.topic in ("cancel", "http")]
CANCELLED_IN_BOTH = {v.id for v in IN_NODE if v.topic == "cancel" and v.id not in NOT_SEEN}
"""What Chromium is seen to cancel, Node repeats with --long only."""


def shown(vector: Vector, long: set[str]) -> Any:
    return pytest.param(vector, marks=pytest.mark.long if vector.id in long else (), id=vector.id)


@pytest.fixture(scope="module")
def model(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("f32", "webgpu-f32")


@pytest.fixture(scope="module")
def in_node(request: pytest.FixtureRequest, model: Path) -> Iterator[Runner]:
    with bridge("node", model) as url, running(request, url) as runner:
        yield runner


@pytest.fixture(scope="module")
def in_chromium(request: pytest.FixtureRequest, model: Path) -> Iterator[Runner]:
    with bridge("chromium", model) as url, running(request, url) as runner:
        yield runner


@pytest.mark.parametrize("vector", [shown(v, CANCELLED_IN_BOTH) for v in IN_NODE])
def test_in_node(in_node: Runner, vector: Vector) -> None:
    in_node.result(vector)


def test_the_long_tail_leaves_some_of_each_topic() -> None:
    left = {vector.topic for vector in IN_CHROMIUM if vector.id not in LONG}
    assert left == {vector.topic for vector in IN_CHROMIUM}


@pytest.mark.parametrize("vector", [shown(v, LONG) for v in IN_CHROMIUM])
def test_in_chromium(in_chromium: Runner, vector: Vector) -> None:
    in_chromium.result(vector)
