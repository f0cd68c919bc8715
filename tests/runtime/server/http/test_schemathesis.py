"""schemathesis over /openapi.json: for anything that the document allows or forbids, no answer is a
500, and none has a status that the document does not list.

A few cases of each path in every run; with --long, hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.runtime.server.helpers.server_process import RunningServer, eventually, idle, running

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
FEW, MANY = 2, 200
"""Cases of a path, of each mode: allowed by the document, and not."""


@pytest.fixture(scope="module")
def served() -> Iterator[RunningServer]:
    with running("--max-queue", "1000") as server:
        yield server


ENDS_ENGINE = ["/sleep", "/wake_up"]


def examine(served: RunningServer, cases: int, path: str = "") -> dict[str, set[int]]:
    """Ask each address so often, or one of those that end the engine. Returns the statuses that
    were seen of each."""
    schema: Any = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    schema = schema.include(path=path) if path else schema.exclude(path=ENDS_ENGINE)
    seen: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        statuses = seen.setdefault(operation.label, set())
        for mode in schemathesis.GenerationMode:
            _ask(operation.as_strategy(generation_mode=mode), cases, served.url, statuses)
    return seen


def _ask(strategy: SearchStrategy[Any], cases: int, url: str, statuses: set[int]) -> None:
    @given(strategy)
    @settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    def ask(case: Any) -> None:
        answer = case.call(base_url=url, timeout=120)
        statuses.add(answer.status_code)
        if answer.headers["content-type"][0].startswith("text/event-stream"):
            assert answer.status_code == 200 and '"internal_error"' not in answer.text
        else:
            case.validate_response(answer, checks=CHECKS)

    with suppress(Unsatisfiable):  # an address without parameters can be asked in one way only
        ask()


@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_no_failure_and_nothing_that_is_not_documented(served: RunningServer, cases: int) -> None:
    children = served.children()
    seen = examine(served, cases)
    posted = {status for label, found in seen.items() if label[:4] == "POST" for status in found}
    assert {200, 400} <= posted, f"neither all refused nor all taken: {posted}"
    assert not [label for label, statuses in seen.items() if not statuses - {405}]
    assert eventually(lambda: idle(served)), "nothing is left in the engine"
    assert {*children} <= {*served.children()}, "no process had to be started again"


@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_sleeping_and_waking(served: RunningServer, cases: int) -> None:
    seen = [examine(served, cases, path) for path in ENDS_ENGINE]
    assert [200 in statuses for found in seen for statuses in found.values()] == [True, True]
    assert not httpx.get(f"{served.url}/is_sleeping").json()["is_sleeping"]
    assert eventually(lambda: idle(served)), "the engine is back, and nothing is left in it"
