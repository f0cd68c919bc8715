"""Every vector through the C library, in a program with an embedded CPython.

Python finds the standard library and mlcc's zip, and nothing else: no numpy, no TVM. The tokenizer
is the host's, by callbacks; a bridge speaks HTTP for the program. Vectors that need grammars run in
a second program, whose `path` has llguidance.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conformance.conftest import running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load
from tests.helpers.mobile.c_bridge import bridge
from tests.helpers.mobile.c_library import Library


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest,
    c_library: Library,
    compiled_demo: Callable[[str, str], Path],
) -> Iterator[Runner]:
    model = compiled_demo("f32", "cpu")
    with bridge([str(c_library.program)], model) as url, running(request, url) as started:
        yield started


@pytest.fixture(scope="module")
def reading(
    request: pytest.FixtureRequest,
    c_library: Library,
    compiled_demo: Callable[[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Runner]:
    """A host with llguidance in `path`, as installed by `pip install --target`."""
    pytest.importorskip("llguidance", reason="needs llguidance: pip install mlcc[structured]")
    model, folder = compiled_demo("f32", "cpu"), tmp_path_factory.mktemp("modules")
    for part in Path(sysconfig.get_path("platlib")).glob("llguidance*"):
        (folder / part.name).symlink_to(part)
    with (
        bridge([str(c_library.program)], model, str(folder)) as url,
        running(request, url) as started,
    ):
        yield started


@pytest.mark.parametrize("vector", [v for v in load() if v.fits("c")], ids=lambda v: v.id)
def test_through_the_c_library(runner: Runner, vector: Vector) -> None:
    runner.result(vector)


@pytest.mark.parametrize(
    "vector",
    [v for v in load() if v.topic == "structured" and v.only == {"server", "tab"}],
    ids=lambda v: v.id,
)
def test_grammars_where_llguidance_is_on_the_path(reading: Runner, vector: Vector) -> None:
    reading.result(vector)
