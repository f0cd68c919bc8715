"""TGI's routes where the engine fails, and the shape of errors."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from mlcc.api.errors import BusyError, EngineDiedError, NotFoundError, RateLimitError
from mlcc.api.tgi.errors import tgi_error
from mlcc.errors import MlccError
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from tests.helpers.toy.toy_model import open_toy, toy_text
from tests.runtime.service.test_every_protocol import ask


def test_a_stream_that_breaks_ends_with_an_error() -> None:
    process = EngineThread(partial(open_toy, 0.0, 0, 6))

    async def run() -> list[str]:
        engine = WorkerClient(process, 8)
        engine.start()
        try:
            service = Service(OneModel(ServedModel(engine, toy_text())))
            body = {"inputs": "x", "parameters": {"max_new_tokens": 100}}
            response = await service.answer(ask("/generate_stream", body))
            assert response.status == 200 and not isinstance(response.body, str)
            lines = [line async for line in response.body]
            response.close()
            assert isinstance(response.failure(), MlccError)
            return lines
        finally:
            engine.stop()

    try:
        *events, last = asyncio.run(run())
    finally:
        process.close()
    assert events and all("token" in json.loads(line[5:]) for line in events)
    assert json.loads(last[5:])["error_type"] == "overloaded"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotFoundError("x"), "validation"),
        (BusyError("x"), "overloaded"),
        (RateLimitError("x", 1), "overloaded"),
        (EngineDiedError("x"), "generation"),
    ],
)
def test_the_type_of_an_error(error: MlccError, kind: str) -> None:
    assert tgi_error(error) == {"error": "x", "error_type": kind}
