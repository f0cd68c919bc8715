"""KServe's protocol over gRPC beneath the soak's requests: each text is that of a quiet server,
with streams that are cancelled and messages of garbage in between."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from typing import Any

import grpc

from mlcc.server.grpc.messages import SERVICE, message

TIMEOUT_S = 120
PAUSE_S = 0.05
"""Between calls, so that they are a part of the load and not all of it."""
_TEXTS = ("hello there", "once upon", "a")


class GrpcBeneath:
    """Calls of one port, in turn. port: 0 = the server has none, and nothing is sent."""

    def __init__(self, port: int, model: str, seed: int) -> None:
        self._port, self._model, self._rng = port, model, random.Random(seed)
        self._quiet: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._channel: Any = None
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []

    async def begin(self) -> None:
        """Ask each text once, then go on beneath."""
        if not self._port:
            return
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._port}")
        for text in _TEXTS:
            self._quiet[text] = await self._ask(text)
        self._task = asyncio.create_task(self._work())

    async def end(self, killed: bool) -> None:
        """Stop. killed: engines were, which ends calls with an error."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()
        if failed := [name for name in self.outcomes if name.endswith("fails") and not killed]:
            self.faults.append(f"gRPC calls failed: {failed}")

    async def _work(self) -> None:
        calls = (self._text, self._text, self._stream, self._leave, self._garbage)
        while True:
            call, text = self._rng.choice(calls), self._rng.choice(_TEXTS)
            name = call.__name__.strip("_")
            try:
                same = await call(text)
            except grpc.aio.AioRpcError as error:
                self.outcomes[f"{name} {error.code().name} fails"] += 1
            else:
                self.outcomes[f"{name} {'answered' if same else 'differs'}"] += 1
                if not same:
                    self.faults.append(f"gRPC: the answer to {text!r} differs ({name})")
            await asyncio.sleep(PAUSE_S)

    async def _text(self, text: str) -> bool:
        return await self._ask(text) == self._quiet[text]

    async def _stream(self, text: str) -> bool:
        """A text in pieces."""
        found = ""
        async for answer in self._streamed(text):
            if answer.error_message:  # as of a call: an engine was killed
                self.outcomes["stream error fails"] += 1
                return True
            found += _text_of(answer.infer_response)
        return found == self._quiet[text]

    async def _leave(self, text: str) -> bool:
        """A stream that is cancelled behind its first piece."""
        stream = self._streamed(text)
        async for _ in stream:
            stream.cancel()
            break
        return True

    async def _garbage(self, text: str) -> bool:
        """A message with a few bytes changed; whatever it is answered."""
        data = bytearray(self._request(text).SerializeToString())
        for _ in range(3):
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        ask = self._channel.unary_unary(f"/{SERVICE}/ModelInfer")
        try:
            await ask(bytes(data), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    async def _ask(self, text: str) -> str:
        ask = self._channel.unary_unary(
            f"/{SERVICE}/ModelInfer", _bytes, message("ModelInferResponse").FromString
        )
        return _text_of(await ask(self._request(text), timeout=TIMEOUT_S))

    def _streamed(self, text: str) -> Any:
        ask = self._channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            _bytes,
            message("ModelStreamInferResponse").FromString,
        )
        return ask(iter([self._request(text)]), timeout=TIMEOUT_S)

    def _request(self, text: str) -> Any:
        made = message("ModelInferRequest")(model_name=self._model, id="1")
        made.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        made.raw_input_contents.append(struct.pack("<I", len(text)) + text.encode())
        made.parameters["max_tokens"].int64_param = 12
        made.parameters["temperature"].double_param = 0.0
        return made


def _bytes(sent: Any) -> bytes:
    return bytes(sent.SerializeToString())


def _text_of(response: Any) -> str:
    return "".join(raw[4:].decode() for raw in response.raw_output_contents)
