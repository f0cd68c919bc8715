"""Adapters through the service: loaded and unloaded while it answers, listed as models, chosen by
name; over the exact toy, in a thread, with the requests of a transport."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mlcc import Engine
from mlcc.api.errors import NotFoundError
from mlcc.embedded.c.engine import InProcessClient
from mlcc.errors import ArtifactError, InvalidRequestError, MlccError
from mlcc.model.model import Model
from mlcc.service.adapters import AdapterEntry, AdapterFolders
from mlcc.service.http.types import ApiRequest
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from mlcc.worker.lora_client import load_initial_adapters
from mlcc.worker.process import EngineProcess
from tests.helpers.toy.toy_model import open_toy, toy_text
from tests.runtime.lora.rooms import open_adapted_toy, save_small

Answer = tuple[int, Any]


class Place:
    """A service in this event loop."""

    def __init__(self, client: WorkerClient | InProcessClient, root: Path | None) -> None:
        self.client = client
        served = ServedModel(client, toy_text(), folders=AdapterFolders(root), aliases=("gpt",))
        self.service = Service(OneModel(served))

    async def ask(self, path: str, body: object = None) -> Answer:
        async def read() -> bytes:
            return json.dumps(body).encode()

        method = "GET" if body is None else "POST"
        headers = {"content-type": "application/json"}
        found = await self.service.answer(ApiRequest(method, path, headers, read))
        assert isinstance(found.body, str)
        plain = found.headers["content-type"].startswith("text/plain")
        return found.status, found.body if plain else json.loads(found.body)

    async def load(self, name: str, path: str, **more: object) -> Answer:
        body = {"lora_name": name, "lora_path": path, **more}
        return await self.ask("/v1/load_lora_adapter", body)

    async def unload(self, name: str) -> Answer:
        return await self.ask("/v1/unload_lora_adapter", {"lora_name": name})

    async def text(self, model: str, tokens: int = 12) -> str:
        body = {"model": model, "prompt": "abcabc", "max_tokens": tokens, "temperature": 0}
        status, found = await self.ask("/v1/completions", body)
        assert status == 200, found
        assert found["model"] == model
        return str(found["choices"][0]["text"])


def living(
    work: Callable[[Place], Awaitable[None]],
    root: Path | None,
    first: tuple[AdapterEntry, ...] = (),
    open_model: Callable[[], Model] = open_adapted_toy,
    engine_of: Callable[..., EngineThread | EngineProcess] = EngineThread,
) -> None:
    """Run `work` with a place, which is closed afterwards."""

    async def run() -> None:
        engine = engine_of(open_model)
        try:
            load_initial_adapters(engine, first)
            client = WorkerClient(engine, 64, adapters=first)
            client.start()
            await work(Place(client, root))
            client.stop()
        finally:
            engine.close()

    asyncio.run(asyncio.wait_for(run(), 120))


def error(answer: Answer, status: int, code: str) -> str:
    assert answer[0] == status, answer
    assert answer[1]["error"]["code"] == code, answer
    return str(answer[1]["error"]["message"])


def test_a_life(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two", "three")):
        save_small(tmp_path / name, seed)
    first = (AdapterEntry("zero", save_small(tmp_path / "zero", 9)),)

    async def work(place: Place) -> None:
        plain, zero = await place.text("toy"), await place.text("zero")
        assert await place.text("gpt") == plain != zero
        assert await place.load("one", "one") == (
            200,
            "Success: LoRA adapter 'one' added successfully.",
        )
        assert (await place.load("two", str(tmp_path / "two")))[0] == 200
        _, listed = await place.ask("/v1/models")
        found = {each["id"]: each["parent"] for each in listed["data"]}
        assert found == {"toy": None, "zero": "toy", "one": "toy", "two": "toy"}
        assert (await place.ask("/v1/models/one"))[1]["parent"] == "toy"
        names = ("toy", "zero", "one", "two")
        alone = [await place.text(name) for name in names]
        assert len(set(alone)) == 4
        mixed = await asyncio.gather(*(place.text(name) for name in names * 3))
        assert mixed == alone * 3
        assert (await place.load("three", "three"))[0] == 200  # beyond the slots: they take turns
        assert (three := await place.text("three")) not in alone
        mixed = await asyncio.gather(*(place.text(name) for name in (*names, "three") * 3))
        assert mixed == [*alone, three] * 3
        assert await place.unload("three") == (
            200,
            "Success: LoRA adapter 'three' removed successfully.",
        )
        assert await place.unload("one") == (
            200,
            "Success: LoRA adapter 'one' removed successfully.",
        )
        body = {"model": "one", "prompt": "a"}
        error(await place.ask("/v1/completions", body), 404, "model_not_found")
        assert (await place.load("three", "three"))[0] == 200
        assert await place.text("three") == three
        save_small(tmp_path / "two", 7)  # replaced while it is used: what is loaded stays
        assert await place.text("two") == alone[3]
        assert (await place.load("two", "two", load_inplace=False))[0] == 400
        await place.unload("zero")
        assert (await place.load("two", "two", load_inplace=True))[0] == 200
        assert await place.text("two") not in alone

    living(work, tmp_path, first)


def test_unloaded_while_it_answers(tmp_path: Path) -> None:
    """The answer goes on to its end, and only then is the slot another's."""
    for name in ("a", "b", "c", "d"):
        save_small(tmp_path / name, ord(name))

    async def work(place: Place) -> None:
        for name in ("a", "b", "c"):
            await place.load(name, name)
        whole = await place.text("a", 300)
        answering = asyncio.ensure_future(place.text("a", 300))
        await asyncio.sleep(0)
        while not place.client.in_flight:
            await asyncio.sleep(0)
        await place.unload("a")
        while (loaded := await place.load("d", "d"))[0] == 503:
            await asyncio.sleep(0)
        assert loaded[0] == 200
        assert await answering == whole
        assert await place.text("d", 300) != whole

    living(work, tmp_path)


def test_what_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    save_small(root / "good")
    save_small(tmp_path / "outside")
    save_small(root / "large", rank=9)
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "half").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (root / "half" / name).symlink_to(tmp_path / "outside" / name)
    (root / "empty").mkdir()

    async def work(place: Place) -> None:
        for path in ("../outside", str(tmp_path / "outside"), "link", "half", "/etc", "a\0b"):
            error(await place.load("x", path), 400, "path_not_allowed")
        for path in ("absent", "n" * 5_000, "a/" * 3_000, "é" * 200):
            error(await place.load("x", path), 400, "path_not_found")
        assert (await place.load("x", "empty"))[0] == 400
        status, found = await place.load("x", "large")
        assert status == 400
        assert "--adapter-rank 9" in found["error"]["message"]
        for name in ("toy", "gpt"):
            error(await place.load(name, "good"), 400, "adapter_exists")
        for name in ("toy:latest", "gpt:latest", "x:latest"):  # Ollama's names
            error(await place.load(name, "good"), 400, "bad_adapter_name")
        assert (await place.load(" x", "good"))[0] == 400
        assert (await place.load("", "good"))[0] == 400
        error(await place.unload("x"), 404, "model_not_found")
        assert (await place.ask("/v1/load_lora_adapter", {"lora_name": "x"}))[0] == 400
        assert (await place.load("x", "good"))[0] == 200
        error(await place.load("x", "good"), 400, "adapter_exists")
        assert await place.text("x") != await place.text("toy")

    living(work, root)


def test_where_there_is_no_folder_or_no_room(tmp_path: Path) -> None:
    async def no_folder(place: Place) -> None:
        error(await place.load("x", str(save_small(tmp_path / "a"))), 400, "adapters_not_allowed")

    async def no_room(place: Place) -> None:
        message = error(await place.load("x", "a"), 400, "no_adapters")
        assert "mlcc compile --adapter-rank" in message

    living(no_folder, None)
    living(no_room, tmp_path, open_model=open_toy)


def test_an_adapter_that_is_wrong_at_the_start(tmp_path: Path) -> None:
    engine = EngineThread(open_adapted_toy)
    try:
        with pytest.raises(ArtifactError, match="is no folder"):
            load_initial_adapters(engine, [AdapterEntry("x", tmp_path / "absent")])
    finally:
        engine.close()


def test_an_engine_that_ended_has_its_adapters_again(tmp_path: Path) -> None:
    """Adapters are loaded again after a restart, except one whose folder is gone, before any
    request."""
    first = (AdapterEntry("zero", save_small(tmp_path / "zero", 9)),)
    save_small(tmp_path / "gone", 5)
    started: list[EngineProcess] = []

    def engine_of(open_model: Callable[[], Model]) -> EngineProcess:
        started.append(EngineProcess(open_model))
        return started[0]

    async def work(place: Place) -> None:
        wanted = await place.text("zero")
        assert (await place.load("gone", "gone"))[0] == 200
        for file in (tmp_path / "gone").iterdir():
            file.unlink()
        pid = started[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        client = place.client
        while client.ready:
            await asyncio.sleep(0.01)
        while not client.ready:
            await asyncio.sleep(0.01)
        assert await place.text("zero") == wanted
        assert [*place.client.adapters] == ["zero"]

    living(work, tmp_path, first, engine_of=engine_of)


def test_behind_mlcc_h(tmp_path: Path) -> None:
    """An engine that steps between turns of the loop."""
    save_small(tmp_path / "one", 1)

    async def run() -> None:
        client = InProcessClient(open_adapted_toy(), 64, lambda: None)
        place = Place(client, tmp_path)
        assert (await place.load("one", "one"))[0] == 200
        error(await place.load("one", "one"), 400, "adapter_exists")
        assert await place.text("one") != await place.text("toy")
        assert (await place.unload("one"))[0] == 200
        error(await place.unload("one"), 404, "model_not_found")
        client.stop(MlccError("the end"))

    asyncio.run(asyncio.wait_for(run(), 60))


def test_pythons_engine(tmp_path: Path) -> None:
    with Engine.of(open_adapted_toy) as engine:

        def text(model: str) -> str:
            made = engine.completions.create(model=model, prompt="abc", temperature=0)
            return str(made.choices[0].text)

        engine.load_adapter("one", save_small(tmp_path / "one", 1))
        first = text("one")
        assert first != text("toy")
        engine.load_adapter("one", save_small(tmp_path / "two", 2), in_place=True)
        assert text("one") != first
        with pytest.raises(ArtifactError, match="is no folder"):
            engine.load_adapter("x", tmp_path / "absent")
        with pytest.raises(InvalidRequestError, match="the model's own name"):
            engine.load_adapter("toy", tmp_path / "one")
        engine.unload_adapter("one")
        with pytest.raises(NotFoundError):
            text("one")
