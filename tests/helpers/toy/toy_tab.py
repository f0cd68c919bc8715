"""The toy model in a tab: Python in the role of JavaScript for `mlcc.embedded`.

The executor is the exact toy over packed batches: a batch is parsed from its one piece of memory; a
step's result comes later, as from a GPU.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from mlcc.artifact.manifest import Manifest, abi_hash
from mlcc.artifact.schema import (
    CacheInfo,
    FileEntry,
    LibraryInfo,
    Limits,
    MemoryPlan,
    ModelInfo,
    QuantizationInfo,
    TargetInfo,
    TensorSpec,
    ToolVersions,
    WeightsInfo,
    WeightSpec,
    tables_of,
)
from mlcc.embedded.entry import EmbeddedModel, plan
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.tables import CacheGroup
from tests.helpers.toy.toy_model import CAPACITY, TEMPLATE, Letters
from tests.helpers.toy.toy_steps import ToySteps, result_json

ADAPTER = {
    "f16": True,
    "packed_dot": True,
    "subgroup_matrices": [],
    "tensor_bytes": 1 << 30,
    "memory_bytes": None,
}
JSON = {"content-type": "application/json"}


class JsError(Exception):
    """The exception that Pyodide raises for a JavaScript Error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.js_error = SimpleNamespace(name=name, message=message)


class ToyGpu:
    """`web/src/device/executor.ts` over the toy: steps are queued at once and answered later.

    `faults` maps the number of a step, from 1, to the error that it fails with.
    """

    depth = 2

    def __init__(self, capacity: Capacity = CAPACITY, delay: float = 0.0) -> None:
        self._toy = ToySteps(capacity)
        self.steps = 0
        self.faults: dict[int, JsError] = {}
        self._delay = delay

    def submit(
        self, data: bytes, sizes: Sequence[int], adjustments: bytes | None = None
    ) -> asyncio.Future[Any]:
        self.steps += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        result = result_json(self._toy.run(data, sizes, adjustments))
        if fault := self.faults.get(self.steps):
            answer.set_exception(fault)
            answer.exception()  # retrieved, or asyncio warns about it
            return answer
        loop.call_later(self._delay, answer.set_result, _arrays(result))
        return answer

    def writeEmbeddings(self, slots: Sequence[int], rows: bytes) -> None:
        self._toy.write_embeddings(slots, rows)


def _arrays(result: dict[str, Any]) -> SimpleNamespace:
    """A result with arrays like JavaScript's typed arrays."""
    tokens, logprobs = array("i", result["tokens"]), array("f", result["logprobs"])
    made = SimpleNamespace(tokens=tokens, logprobs=logprobs)
    if "top" in result:
        made.top = _arrays(result["top"])
    return made


class JsLetters:
    """`web/src/model/tokenizer/tokenizer.ts` over the toy's letters."""

    def encode(self, text: str, special: bool) -> list[int]:
        return Letters().encode(text, add_special_tokens=special).tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return Letters().decode(ids)

    def specialTokens(self) -> list[str]:
        return list(Letters().special_tokens())


@dataclass
class Reply:
    """The answer as a page receives it."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str = ""

    def start(self, status: int, headers: str) -> None:
        assert not self.status and not self.ended.is_set()
        self.status, self.headers = status, json.loads(headers)

    def write(self, text: str) -> None:
        assert self.status and not self.ended.is_set()
        self.pieces.append(text)

    def end(self) -> None:
        assert not self.ended.is_set()
        self.ended.set()

    def fail(self, message: str) -> None:
        self.failure = message
        self.end()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, but for its [DONE]."""
        found = [line.removeprefix("data: ") for line in self.text.split("\n\n") if line]
        return [json.loads(line) for line in found if line != "[DONE]"]


def ask(tab: Any, path: str, body: Any = None, method: str = "") -> tuple[Reply, Any]:
    """Begin a request: the reply to come, and the call."""
    reply = Reply()
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    method = method or ("GET" if body is None else "POST")
    return reply, tab.handle(method, path, json.dumps(JSON), text, reply)


async def answer(tab: Any, path: str, body: Any = None, method: str = "") -> Reply:
    """A request and its whole reply."""
    reply, _ = ask(tab, path, body, method)
    await asyncio.wait_for(reply.ended.wait(), 60)
    return reply


def toy_manifest(capacity: Capacity = CAPACITY, elements: int = 64, **changes: Any) -> Manifest:
    """The toy as an artifact for browsers, compiled for a capacity; nothing loads its files.

    A token's keys have so many elements of two bytes, and its values.
    """
    digest = "0" * 64
    files = [("model.wasm", 9), ("tokenizer.json", 5), ("chat_template.jinja", 70), ("w.st", 40)]
    layout = capacity.layout
    groups = zip(capacity.groups, capacity.pools, strict=True)
    caches = tuple(_cache(group, pool, elements) for group, pool in groups)
    made = Manifest(
        abi=abi_hash("0", "0"),
        model=ModelInfo(
            name="toy",
            architecture="toy",
            config={},
            vocab_size=CAPACITY.vocab_size,
            eos_token_ids=(0,),
            special_tokens={},
        ),
        quantization=QuantizationInfo(name="f32", options={}),
        target=TargetInfo(
            name="webgpu", device="webgpu", arch="wasm32", triple="", cpu="", features=(),
            options={"f16": True},
        ),
        library=LibraryInfo(path="model.wasm", kind="wasm"),
        functions=("forward", "sample", "copy_pages"),
        caches=caches,
        limits=Limits(
            context=capacity.context,
            max_batch=layout.max_sequences,
            max_step_tokens=layout.max_tokens,
            max_rows=layout.max_rows,
            max_step_pages=layout.max_pages,
            max_copies=layout.max_copies,
        ),
        tables=tables_of(layout),
        weights=WeightsInfo(
            tensors=(WeightSpec(name="w", dtype="float32", shape=(2, 5), shard="w.st"),)
        ),
        memory=MemoryPlan(
            weights_bytes=40,
            cache_bytes=sum(cache.pool * cache.bytes_per_page for cache in caches),
            workspace_bytes=1000,
        ),
        tools=ToolVersions(mlcc="0.1.0", tvm="0", tvm_ffi="0"),
        files=tuple(FileEntry(path=p, bytes=n, sha256=digest, chunks=(digest,)) for p, n in files),
    )  # fmt: skip
    return replace(made, **changes)


def _cache(group: CacheGroup, pool: int, elements: int) -> CacheInfo:
    shape = ("num_pages", 2, 1, group.page_size, elements)
    return CacheInfo(
        kind=group.kind,
        page_size=group.page_size,
        window=group.window,
        pool=pool,
        layers=(0,),
        tensors=(TensorSpec(name="cache", dtype="float16", shape=shape),),
    )


def toy_plan(capacity: Capacity = CAPACITY) -> str:
    """The toy's memory plan, with a capacity chosen by the test."""
    made = json.loads(plan(toy_manifest(capacity).to_bytes(), json.dumps(ADAPTER), "{}"))
    sizes = {name: getattr(capacity, name) for name in made["capacity"]}
    return json.dumps({**made, "capacity": sizes})


@asynccontextmanager
async def open_tab(
    capacity: Capacity = CAPACITY, gpu: ToyGpu | None = None, parse_special: bool = False
) -> AsyncIterator[Any]:
    """A tab over the toy, closed at the end."""
    texts = {"chat_template.jinja": TEMPLATE}
    device = gpu or ToyGpu(capacity)
    manifest, plan = toy_manifest(capacity).to_bytes(), toy_plan(capacity)
    tab = EmbeddedModel(manifest, plan, texts, JsLetters(), device, parse_special)
    try:
        yield tab
    finally:
        tab.close()
