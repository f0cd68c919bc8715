"""The threads between a server and its engine: nothing that one message does ends them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mlcc.service.http.types import JSON_TYPE, ApiRequest
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from mlcc.worker.messages import Add, Command
from tests.helpers.toy.toy_model import open_toy, toy_text


class Unpicklable(EngineThread):
    """The first request cannot be sent to it."""

    failed = False

    def send(self, command: Command) -> None:
        if isinstance(command, Add) and not self.failed:
            self.failed = True
            raise RuntimeError("dictionary changed size during iteration")
        super().send(command)


def test_a_request_that_cannot_be_sent_costs_no_other() -> None:
    async def asked(service: Service) -> tuple[int, Any]:
        async def read() -> bytes:
            return b'{"prompt": "a", "max_tokens": 2}'

        headers = {"content-type": JSON_TYPE}
        response = await asyncio.wait_for(
            service.answer(ApiRequest("POST", "/v1/completions", headers, read)), 60
        )
        assert isinstance(response.body, str)
        return response.status, json.loads(response.body)

    async def work(process: EngineThread) -> None:
        client = WorkerClient(process, 8)
        client.start()
        service = Service(OneModel(ServedModel(client, toy_text())))
        status, body = await asked(service)
        assert (status, body["error"]["code"]) == (500, "internal_error")
        assert [(await asked(service))[0] for _ in range(2)] == [200, 200]
        client.stop()

    process = Unpicklable(open_toy)
    try:
        asyncio.run(work(process))
    finally:
        process.close()
