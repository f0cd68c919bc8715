"""Adapters in a tab over the toy executor, which does not compute them: the matrices that
JavaScript gets, the names that requests may use, and errors for invalid folders. Their results are
tested in tests/e2e/web.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mlcc.embedded.entry import EmbeddedModel, plan
from tests.helpers.toy.toy_model import CAPACITY, TEMPLATE
from tests.helpers.toy.toy_tab import (
    ADAPTER,
    JsError,
    JsLetters,
    Reply,
    ToyGpu,
    answer,
    toy_manifest,
)
from tests.runtime.lora.rooms import ROOM, save_small, with_slots

MODELS, COMPLETIONS = "/v1/models", "/v1/completions"
MANIFEST = toy_manifest(with_slots(CAPACITY), adapters=ROOM).to_bytes()


class AdaptedGpu(ToyGpu):
    """Records the writes to its slots, and fails once a test sets a fault."""

    def __init__(self) -> None:
        super().__init__(with_slots(CAPACITY))
        self.written: list[tuple[int, list[dict[str, Any]]]] = []
        self.broken: JsError | None = None

    def writeAdapter(self, slot: int, matrices: str, data: Any) -> None:
        if self.broken:
            raise self.broken
        self._toy.write_adapter(slot, matrices, data)
        self.written.append((slot, json.loads(matrices)))


@asynccontextmanager
async def opened(gpu: AdaptedGpu) -> AsyncIterator[Any]:
    made = json.loads(plan(MANIFEST, json.dumps(ADAPTER), "{}"))
    sizes = {name: getattr(CAPACITY, name) for name in made["capacity"]}
    given = json.dumps({**made, "capacity": sizes})
    tab = EmbeddedModel(MANIFEST, given, {"chat_template.jinja": TEMPLATE}, JsLetters(), gpu)
    try:
        yield tab
    finally:
        tab.close()


async def load(tab: Any, name: str, folder: Path, in_place: bool = False) -> Any:
    files = [folder / "adapter_config.json", folder / "adapter_model.safetensors"]
    given = [path.read_bytes() for path in files]
    return json.loads(await tab.load_adapter(name, *given, in_place)).get("error")


async def ask(tab: Any, model: str) -> Reply:
    asked = {"model": model, "prompt": "abc", "max_tokens": 9, "temperature": 0}
    return await answer(tab, COMPLETIONS, {**asked, "ignore_eos": True})


async def answer_of(tab: Any, model: str) -> str:
    return str((await ask(tab, model)).json["choices"][0]["text"])


def test_the_plan_has_room_for_them() -> None:
    made = json.loads(plan(MANIFEST, json.dumps(ADAPTER), "{}"))
    shapes = [tuple(tensor["shape"]) for tensor in made["adapters"]["tensors"]]
    assert shapes == ROOM.shapes
    assert made["bytes"]["adapters"] == ROOM.nbytes
    tiny = {**ADAPTER, "tensor_bytes": 600}
    assert "--lora-slots" in json.loads(plan(MANIFEST, json.dumps(tiny), "{}"))["error"]["message"]


def test_more_than_slots_take_turns_and_go(tmp_path: Path) -> None:
    async def run() -> None:
        gpu = AdaptedGpu()
        async with opened(gpu) as tab:
            for i in range(ROOM.slots + 1):
                assert await load(tab, f"a{i}", save_small(tmp_path / f"{i}", i)) is None
            assert [slot for slot, _ in gpu.written] == [0, 1, 2]
            assert {m["transposed"] for m in gpu.written[0][1]} == {False, True}
            texts: dict[int, str] = {}
            for i in (3, 0, 1, 2, 3, 0):
                text = await answer_of(tab, f"a{i}")
                assert texts.setdefault(i, text) == text
            assert len({*texts.values()}) > 1
            assert len(gpu.written) > ROOM.slots
            listed = (await answer(tab, MODELS)).json["data"]
            assert [each["id"] for each in listed[1:]] == ["a0", "a1", "a2", "a3"]
            gone = await answer(tab, "/v1/unload_lora_adapter", {"lora_name": "a1"})
            assert gone.status == 200
            assert (await ask(tab, "a1")).status == 404
            assert (await ask(tab, "a0")).status == 200

    asyncio.run(run())


def test_invalid_folders_are_refused_without_effect(tmp_path: Path) -> None:
    async def run() -> None:
        gpu, good = AdaptedGpu(), save_small(tmp_path / "good")
        async with opened(gpu) as tab:
            dora = await load(tab, "x", save_small(tmp_path / "dora", use_dora=True))
            assert dora["type"] == "UnsupportedError" and "DoRA" in dora["message"]
            large = await load(tab, "x", save_small(tmp_path / "large", rank=5))
            assert large["type"] == "ArtifactError"
            assert large["message"].startswith("the adapter 'x': has rank 5")
            broken = json.loads(await tab.load_adapter("x", b"{", b"", False))["error"]
            assert broken["type"] == "ArtifactError" and "mlcc-adapter-" not in broken["message"]
            named = await load(tab, "toy", good)
            assert named["code"] == "adapter_exists"
            gpu.broken = JsError("DeviceLostError", "the GPU is gone")
            assert (await load(tab, "x", good))["type"] == "DeviceLostError"
            gpu.broken = None
            assert (await ask(tab, "x")).status == 404
            assert await load(tab, "x", good) is None
            assert (await load(tab, "x", good))["code"] == "adapter_exists"
            assert await load(tab, "x", good, in_place=True) is None
            by_path = {"lora_name": "y", "lora_path": str(good)}
            refused = await answer(tab, "/v1/load_lora_adapter", by_path)
            assert refused.status == 400 and "engine.loadAdapter" in refused.text
            assert (await ask(tab, "x")).status == 200

    asyncio.run(run())
