"""Vectors against the engine of the browser tab, through a bridge that speaks HTTP for it.

In Chromium, with a page, its service worker and its worker: all vectors that need no computation,
and of the others those that depend on a browser and one of each topic; all with --long. Node runs
the same tab without these, and the vectors about connections, too. Both compute on SwiftShader, a
token at a time; Python's part is also tested where that is fast: by the server's equal vectors, and
in Pyodide (tests/runtime/embedded/test_pyodide.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conformance.conftest import running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load
from tests.helpers.web_package import bridge, has_grammars

VECTORS = [vector for vector in load() if vector.fits("tab")]
NOT_SEEN = {"cancel/whole-answer-left", "cancel/left-while-reading-a-long-prompt"}
"""Chromium tells a service worker nothing of a fetch that its page gave up before the answer began:
such a request is answered to its end. (`engine.fetch` with a signal ends it, in Node as in a page.)
"""
IN_CHROMIUM = [vector for vector in VECTORS if vector.id not in NOT_SEEN]
COMPUTED = {
    "adjust/completions-frequency",
    "answers/chat-three-streamed",
    "anthropic/stream",
    "batching/eight-at-once",
    "cancel/idle-after-errors",
    "cancel/running-while-streaming",
    "cancel/stream-left",
    "fields/null-is-absent",
    "filters/chat-typical-p",
    "http/503-queue-full",
    "http/chunked",
    "http/content-type-charset",
    "http/json-escapes",
    "logprobs/chat-whole",
    "llamacpp/completion-stopped",
    "long/chat-of-many-turns",
    "messages/template-markers-in-content",
    "not_built/chat-neutral",
    "ollama/chat-lines",
    "responses/kept",
    "sampling/exact-all-filters",
    "scheduling/chat-priority",
    "shapes/health",
    "stop/in-a-stream",
    "streaming/chat-chunks-with-usage",
    "streaming/completion-chunks",
    "streaming/no-text-at-all",
    "streaming/several-prompts",
    "structured/chat-json-schema",
    "structured/chat-llama-grammar",
    "structured/completions-text",
    "tokens/messages",
    "tgi/generate",
    "tools/history",
    "unicode/whole-characters-in-a-stream",
    "usage/one-token",
}
"""Vectors computed in Chromium in every run: bodies in and out, concurrent requests, state
afterwards."""
LONG = {vector.id for vector in IN_CHROMIUM if vector.computes} - COMPUTED
IN_NODE = [vector for vector in VECTORS if vector.topic in ("cancel", "http")]
LONG_IN_NODE = {vector.id for vector in IN_NODE if vector.computes} - NOT_SEEN
"""Vectors that Chromium computes; Node repeats them with --long only."""

NEEDS_GRAMMARS = pytest.mark.skipif(
    not has_grammars(), reason="needs Rust for grammars in a tab (rustup.rs)"
)

FEATURES = {
    "answers/chat-three-streamed": "answers",
    "anthropic/stream": "anthropic",
    "logprobs/chat-whole": "logprobs",
    "responses/kept": "responses",
    "llamacpp/completion-stopped": "llamacpp",
    "ollama/chat-lines": "ollama",
    "scheduling/chat-priority": "scheduling",
    "structured/chat-json-schema": "structured",
    "tgi/generate": "tgi",
}
"""Features that these vectors prove in Chromium and that no other test does."""


def shown(vector: Vector, long: set[str]) -> Any:
    marks = [pytest.mark.long] if vector.id in long else []
    if vector.only and vector.topic == "structured":
        marks.append(NEEDS_GRAMMARS)
    if vector.id in FEATURES and long is LONG:
        marks.append(pytest.mark.feature(FEATURES[vector.id], "webgpu", "runs"))
    return pytest.param(vector, marks=marks, id=vector.id)


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


@pytest.mark.parametrize("vector", [shown(v, LONG_IN_NODE) for v in IN_NODE])
def test_in_node(in_node: Runner, vector: Vector) -> None:
    in_node.result(vector)


def test_the_long_tail_leaves_some_of_each_topic() -> None:
    computing = [vector for vector in IN_CHROMIUM if vector.computes]
    assert {vector.id for vector in computing} >= COMPUTED
    assert {id.partition("/")[0] for id in COMPUTED} == {vector.topic for vector in computing}


@pytest.mark.parametrize("vector", [shown(v, LONG) for v in IN_CHROMIUM])
def test_in_chromium(in_chromium: Runner, vector: Vector) -> None:
    in_chromium.result(vector)
