"""`--device 0,1`: an engine process on each of several devices of this machine, without Ray. The
toy runs on any device."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.commands.options import Devices
from mlcc.commands.serve.replicas import Replicated
from mlcc.engine.kv_cache.prefix_digest import prefix_hashes
from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.request import Request, SamplingParams
from mlcc.errors import DeviceError, UnsupportedError
from mlcc.model.model import Model
from mlcc.scale.data_parallel import DataParallelEngines
from mlcc.scale.fleet import EngineStatus
from mlcc.server.asgi import Settings
from mlcc.service.engine_client import EngineClient
from tests.helpers.toy.toy_model import CAPACITY, Letters, open_toy
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=300, ignore_eos=True)


def open_on(device: int) -> Model:
    """Open a toy model on device 0 or 1."""
    if device > 1:
        raise DeviceError(f"there is no device {device}")
    return open_toy(delay=0.005)


@pytest.fixture(scope="module")
def engines() -> Iterator[DataParallelEngines]:
    made = DataParallelEngines(open_on, Settings(), "fp", (0, 1))
    yield made
    made.close()


def prompt(text: str) -> list[int]:
    return list(Letters().encode(text, add_special_tokens=False))


async def answer(client: EngineClient, name: str, text: str) -> tuple[str, int]:
    """The answer's text, and how much of the prompt was there."""
    job = client.submit([Request(name, prompt(text), GREEDY)], 60)
    try:
        (found,) = await job.answers()
        assert found.finished.completion_tokens == GREEDY.max_tokens
        return found.text, found.finished.cached_tokens
    finally:
        job.close()


def test_two_devices_are_one_server(engines: DataParallelEngines) -> None:
    """The engines of two devices answer in one event loop, as in a server."""

    async def run() -> None:
        engines.start()
        client = engines.client
        alike = {text for text, _ in await asyncio.gather(
            *(answer(client, f"a{n}", "the same") for n in range(8)))}  # fmt: skip
        assert len(alike) == 1
        await asyncio.gather(*(answer(client, f"b{n}", f"{n} is another") for n in range(8)))
        each = (await client.counters())["replicas"]
        assert set(each) == {"0", "1"} and min(one["routed"] for one in each.values()) >= 4

        beginnings = [f"{kind} is what all of these questions begin with. " * 2 for kind in "xyz"]
        for begin in beginnings:
            await answer(client, begin, begin)
        hits = [(await answer(client, f"{b}?", f"{b} And?"))[1] for b in beginnings]
        assert min(hits) >= 64, "it goes where its beginning is"

        lied = prefix_hashes("", prompt("nobody has it" * 9), RadixTree(CAPACITY.groups).block)
        engines._replica_set._fleet.update("1", EngineStatus({number for _, number in lied}), 0.0)
        text, found = await answer(client, "stale", "nobody has it" * 9)
        assert found == 0 and (await answer(client, "again", "nobody has it" * 9))[0] == text

        await an_engine_dies(engines)
        engines.stop()

    asyncio.run(run())


async def an_engine_dies(engines: DataParallelEngines) -> None:
    """Its streams end with a typed error, the others go on, and the next are answered."""
    client = engines.client

    async def stream(number: int) -> str:
        job = client.submit([Request(f"s{number}", prompt(f"{number}"), LONG)], 60)
        try:
            async for _ in job.events():
                begun.release()
            return "complete"
        except Exception as error:
            return str(getattr(error, "code", error))
        finally:
            job.close()

    begun = asyncio.Semaphore(0)
    streams = [asyncio.ensure_future(stream(number)) for number in range(4)]
    for _ in range(24):
        await begun.acquire()
    pid = engines._replicas["1"]._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*(answer(client, f"c{n}", f"{n}, then?") for n in range(4)))
    ends = await asyncio.gather(*streams)
    assert set(ends) == {"complete", "replica_lost"}, ends


def test_a_device_that_is_not_there_ends_all() -> None:
    with pytest.raises(DeviceError, match="--device 2: there is no device 2"):
        DataParallelEngines(open_on, Settings(), "fp", (0, 2))


@pytest.mark.parametrize("given", ["", "0,", "a", "-1", "0,0", "0;1", "0,1,0", "9" * 9])
def test_what_are_no_numbers_of_devices(given: str) -> None:
    result = CliRunner().invoke(cli, ["serve", "model", "--device", given])
    assert result.exit_code == 2 and "'--device'" in result.output


def test_numbers_of_devices() -> None:
    assert [Devices().convert(text, None, None) for text in ("3", "0,1")] == [(3,), (0, 1)]


def test_on_a_cpu_it_says_so_before_it_compiles(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "tiny")
    result = CliRunner().invoke(cli, ["serve", str(model), "--device", "0,1"])
    assert result.exit_code and "runs on the CPU; leave out --device" in str(
        result.exception or result.output
    )


def test_what_is_not_built_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Replicated(False, None, None, None, None)
    with pytest.raises(UnsupportedError, match="for one model"):
        alone.check(Settings(), alone=False, devices=(0, 1))
    with pytest.raises(UnsupportedError, match="--lora"):
        alone.check(Settings(lora_dir=Path()), alone=True, devices=(0, 1))
    with pytest.raises(UnsupportedError, match="without Ray"):
        Replicated(True, None, None, None, None).check(Settings(), alone=True, devices=(0, 1))
