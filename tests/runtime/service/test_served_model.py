"""One model behind the API: what it refuses before it reads, what it logs, and whom it forgets."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.api.errors import BusyError
from mlcc.errors import DeviceError, InvalidRequestError, MlccError
from mlcc.service import served_model
from mlcc.service.generate import Generation
from mlcc.service.http.types import ApiRequest, json_response, to_json
from mlcc.service.served_model import OneModel, ServedModel, ServiceBounds
from mlcc.service.service import Service
from tests.helpers.toy.toy_model import toy_text
from tests.runtime.service.test_engine_client import Recording, requests


def test_a_full_queue_is_told_before_the_body_is_read() -> None:
    async def never() -> bytes:
        raise AssertionError("read")

    async def work() -> None:
        engine = Recording(1)
        served = ServedModel(engine, toy_text())
        engine.submit(requests("a", "1"), None)
        with pytest.raises(BusyError):
            await served.body(ApiRequest("POST", "/", {}, never, "a"))

    asyncio.run(work())


def test_the_models_of_a_dead_engine() -> None:
    engine = Recording(1)
    models = OneModel(ServedModel(engine, toy_text()))
    assert [entry.name for entry in models.entries()] == ["toy"]
    engine.dead = DeviceError("it is gone")
    with pytest.raises(DeviceError, match="it is gone"):
        models.entries()


def test_how_many_unknown_fields_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(served_model, "MOST_LOGGED", 2)
    served = ServedModel(Recording(1), toy_text())
    for name in ("a", "a", "b", "c", "b"):
        served._ignored([InvalidRequestError(f"unknown {name}", param=name)])
    assert [line.getMessage() for line in caplog.records] == [
        "ignored: unknown a", "ignored: unknown b"]  # fmt: skip
    assert caplog.records[0].levelno == logging.WARNING
    strict = ServedModel(Recording(1), toy_text(), bounds=ServiceBounds(strict_fields=True))
    with pytest.raises(InvalidRequestError, match="unknown a"):
        strict._ignored([InvalidRequestError("unknown a", param="a")])


class Several:
    """Ten models, of which any may be leased."""

    only = None

    def __init__(self) -> None:
        self.leased, self.released = 0, 0

    def entries(self) -> list[Any]:
        return [SimpleNamespace(name=f"m{n}") for n in range(10)]

    async def lease(self, name: str | None) -> Any:
        self.leased += 1
        return SimpleNamespace(served=name, release=self._release)

    def _release(self) -> None:
        self.released += 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_lease_ends_with_its_request(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    async def place(served: Any, request: ApiRequest) -> Any:
        if fails:
            raise DeviceError(f"no {served}")
        return json_response(served)

    async def read() -> bytes:
        return json.dumps(body).encode()

    monkeypatch.setattr("mlcc.service.service.handler", lambda route: place)
    models: Any = Several()
    service, headers = Service(models), {"content-type": "application/json"}
    body: dict[str, Any] = {"model": "m3"}
    request = ApiRequest("POST", "/v1/completions", headers, read)
    response = asyncio.run(service.answer(request))
    assert response.body == '"m3"' or (fails and "no m3" in str(response.body))
    assert models.leased == models.released == 1 and (response.status == 200) != fails
    body = {"model": ""}
    text = str(asyncio.run(service.answer(request)).body)
    assert "'m7'" in text and "'m8'" not in text and models.leased == 1


def test_a_request_that_is_not_admitted_is_closed() -> None:
    class Job:
        closed = 0

        async def accepted(self) -> None:
            raise BusyError("no room")

        def close(self) -> None:
            self.closed += 1

    job: Any = Job()
    generation = object.__new__(Generation)
    object.__setattr__(generation, "job", job)
    with pytest.raises(MlccError, match="no room"):
        asyncio.run(generation.accepted())
    assert job.closed == 1


def test_json_is_compact_and_in_utf8() -> None:
    assert to_json({"é": [1, "漢"]}) == '{"é":[1,"漢"]}'
    with pytest.raises(ValueError):
        to_json(float("nan"))
