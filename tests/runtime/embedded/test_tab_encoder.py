"""An encoder in a tab without a GPU: the embedding of a text is a hash of the tokens in the packed
step. Concurrent requests, a client that disconnects, and a GPU that fails."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.artifact.schema import EncoderInfo
from mlcc.embedded.entry import EmbeddedModel, plan
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import UnsupportedError
from tests.helpers.toy.toy_model import CAPACITY as TOY
from tests.helpers.toy.toy_model import Letters
from tests.helpers.toy.toy_tab import ADAPTER, JsError, JsLetters, answer, ask, toy_manifest

WIDTH = 3
ENCODER = EncoderInfo(task="embed", pooling="cls", width=WIDTH, normalize=False, prompts={})
CAPACITY = Capacity.of(
    [CacheGroup("paged", 4)], [64], vocab_size=TOY.vocab_size, context=64, max_batch=8,
    max_step_tokens=64,
)  # fmt: skip
EMBED = "/v1/embeddings"


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def row_of(tokens: Sequence[int]) -> list[float]:
    return [float(sum(tokens) + i * len(tokens)) for i in range(WIDTH)]


class RowsGpu:
    """`web/src/device/executor.ts` of an encoder; `faults` as `ToyGpu` has it."""

    depth = 2

    def __init__(self) -> None:
        self.faults: dict[int, JsError] = {}
        self.steps: list[int] = []
        """The number of texts of each step."""

    def submit(self, data: bytes, sizes: Any, adjustments: Any = None) -> asyncio.Future[Any]:
        assert adjustments is None
        layout = CAPACITY.layout
        words = memoryview(bytearray(4 * layout.words)).cast("i")
        words[: len(data) // 4] = memoryview(data).cast("i")
        batch = Batch(layout, words)
        texts: dict[int, list[int]] = {}
        ids, owners = (batch.column(layout.tokens, name) for name in ("id", "sequence"))
        for token, owner in zip(ids, owners, strict=True):
            texts.setdefault(int(owner), []).append(int(token))
        self.steps.append(len(texts))
        vectors = array("f", [x for tokens in texts.values() for x in row_of(tokens)])
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if fault := self.faults.get(len(self.steps)):
            future.set_exception(fault)
        else:
            loop.call_later(0, future.set_result, SimpleNamespace(vectors=memoryview(vectors)))
        return future


@asynccontextmanager
async def open_tab(gpu: RowsGpu, **options: Any) -> AsyncIterator[Any]:
    manifest = replace(toy_manifest(CAPACITY), functions=("forward",), encoder=ENCODER).to_bytes()
    made = plan(manifest, json.dumps(ADAPTER), "{}")
    tab = EmbeddedModel(manifest, made, {"chat_template.jinja": ""}, JsLetters(), gpu, **options)
    try:
        yield tab
    finally:
        tab.close()


def ids(text: str) -> list[int]:
    return Letters().encode(text, add_special_tokens=True).tolist()


def rows(reply: Any) -> list[list[float]]:
    assert reply.status == 200, reply.text
    return [each["embedding"] for each in reply.json["data"]]


@in_loop
async def test_requests_that_come_together_share_steps() -> None:
    gpu = RowsGpu()
    async with open_tab(gpu) as tab:
        texts = [f"{'ab' * (i % 5)}c" for i in range(40)]
        replies = await asyncio.gather(*(answer(tab, EMBED, {"input": text}) for text in texts))
        assert [rows(reply) for reply in replies] == [[row_of(ids(text))] for text in texts]
        many = await answer(tab, EMBED, {"input": texts})
        assert rows(many) == [row_of(ids(text)) for text in texts]
        assert sum(gpu.steps) == 80 and max(gpu.steps) > 1
        counters = json.loads(tab.stats())
        assert counters["driver"]["steps"] == len(gpu.steps) == counters["engine"]["steps"]


@in_loop
async def test_a_cancelled_request_is_forgotten_and_others_are_answered() -> None:
    gpu = RowsGpu()
    async with open_tab(gpu) as tab:
        gone, call = ask(tab, EMBED, {"input": ["abc"] * 60})
        stays = asyncio.ensure_future(answer(tab, EMBED, {"input": "xyz"}))
        await asyncio.sleep(0)
        call.cancel()
        assert rows(await stays) == [row_of(ids("xyz"))]
        await asyncio.wait_for(gone.ended.wait(), 60)
        assert not gone.pieces


@in_loop
async def test_a_step_that_fails_costs_its_texts_and_a_lost_gpu_all() -> None:
    gpu = RowsGpu()
    gpu.faults = {1: JsError("DeviceError", "no"), 3: JsError("DeviceLostError", "gone")}
    async with open_tab(gpu) as tab:
        assert (await answer(tab, EMBED, {"input": "abc"})).status == 500
        assert rows(await answer(tab, EMBED, {"input": "abc"})) == [row_of(ids("abc"))]
        for _ in range(2):
            reply = await answer(tab, EMBED, {"input": "abc"})
            assert reply.json["error"]["code"] == "device_lost"
        assert len(gpu.steps) == 3


@in_loop
async def test_what_is_for_models_that_write_is_refused() -> None:
    async with open_tab(RowsGpu()) as tab:
        chat = await answer(tab, "/v1/completions", {"prompt": "a"})
        assert chat.json["error"]["code"] == "encoder_model"
        reply = json.loads(await tab.load_adapter("x", b"{}", b"", False))
        assert reply["error"]["code"] == "no_adapters"
        with pytest.raises(UnsupportedError, match="'speculate'"):
            async with open_tab(RowsGpu(), speculate="lookup"):
                pass
