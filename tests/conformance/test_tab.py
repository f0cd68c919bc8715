"""Vectors against the engine of the browser tab, through a bridge that speaks HTTP for it.

All in Chromium, where a page, its service worker and its worker lie in the way. Node, which runs
the same tab without them, runs those about connections. Both compute on SwiftShader.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_package import bridge, compile_demo

from conformance.conftest import running
from conformance.runner import Runner
from conformance.vectors import Vector, load

VECTORS = [vector for vector in load() if vector.fits("tab")]
NOT_SEEN = {"cancel/whole-answer-left", "cancel/left-while-reading-a-long-prompt"}
"""Chromium tells a service worker nothing of a fetch that its page gave up before the answer began:
such a request is answered to its end. (`engine.fetch` with a signal ends it, in Node as in a page.)
"""
IN_CHROMIUM = [vector for vector in VECTORS if vector.id not in NOT_SEEN]
IN_NODE = [vector for vector in VECTORS if vector.topic in ("cancel", "http")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_demo(tmp_path_factory.mktemp("conformance") / "webgpu", quant="f32")


@pytest.fixture(scope="module")
def in_node(request: pytest.FixtureRequest, model: Path) -> Iterator[Runner]:
    with bridge("node", model) as url, running(request, url) as runner:
        yield runner


@pytest.fixture(scope="module")
def in_chromium(request: pytest.FixtureRequest, model: Path) -> Iterator[Runner]:
    with bridge("chromium", model) as url, running(request, url) as runner:
        yield runner


@pytest.mark.parametrize("vector", IN_NODE, ids=lambda v: v.id)
def test_in_node(in_node: Runner, vector: Vector) -> None:
    in_node.result(vector)


@pytest.mark.parametrize("vector", IN_CHROMIUM, ids=lambda v: v.id)
def test_in_chromium(in_chromium: Runner, vector: Vector) -> None:
    in_chromium.result(vector)
