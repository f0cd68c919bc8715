"""Every vector through the C library, in a program of its own with CPython embedded.

Python finds the standard library and mlcc's zip, and nothing else: no numpy, no TVM. The tokenizer
is the host's, by callbacks; a bridge speaks HTTP for the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from c_bridge import bridge
from c_library import Library

from conformance.conftest import running
from conformance.runner import Runner
from conformance.vectors import Vector, load


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest,
    c_library: Library,
    compiled_demo: Callable[[str, str], Path],
) -> Iterator[Runner]:
    model = compiled_demo("f32", "cpu")
    with bridge([str(c_library.program)], model) as url, running(request, url) as started:
        yield started


@pytest.mark.parametrize("vector", [v for v in load() if v.fits("c")], ids=lambda v: v.id)
def test_through_the_c_library(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
