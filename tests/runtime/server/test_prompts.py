"""Prompts are processed in separate processes: one that takes too much time or memory fails
alone."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
import time
import weakref
from array import array
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.errors import BusyError, RequestTimeoutError
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import ArtifactError, CapacityError, InvalidRequestError, MlccError
from mlcc.model.model import ModelText
from mlcc.server.prompts import prompt_pool, prompt_worker
from mlcc.server.prompts.prompt_pool import LARGE, PromptPool, PromptWorker
from mlcc.server.prompts.prompt_worker import PromptJob
from tests.helpers.toy.toy_model import Letters, toy_text
from tests.runtime.server.helpers.openers import (
    JOB_S,
    hostile_text,
    no_text,
    open_never,
    open_slowly,
    open_third_time,
)
from tests.runtime.server.helpers.server_process import eventually

CONTEXT = 512


@asynccontextmanager
async def started(opener: Callable[[], ModelText], **bounds: Any) -> AsyncIterator[PromptPool]:
    prompts = PromptPool(opener, **bounds)
    try:
        prompts.start()
        yield prompts
    finally:
        prompts.close()


async def asked(prompts: PromptPool, what: str, seconds: float = 120) -> list[int]:
    return await prompts.chat([{"role": "user", "content": what}], CONTEXT, seconds)


FINE = Letters().encode("fine", add_special_tokens=True)


def test_what_a_worker_answers_is_what_the_model_says() -> None:
    async def both() -> tuple[list[int], list[int]]:
        async with started(toy_text) as prompts:
            return await asked(prompts, "hi"), await prompts.text("once", CONTEXT, None)

    text = toy_text()
    chat = text.encode_chat([{"role": "user", "content": "hi"}])
    assert asyncio.run(both()) == (chat, text.encode_prompt("once"))


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("eat", CapacityError, "took more than 256 MiB of memory"),
        ("crash", CapacityError, "its process had to be ended"),
        ("bug", MlccError, "this is a bug in mlcc"),
    ],
)
def test_a_hostile_template_costs_its_own_request(
    what: str, kind: type[MlccError], words: str
) -> None:
    async def several() -> list[list[int]]:
        async with started(hostile_text, workers=1, memory_bytes=256 << 20) as prompts:
            with pytest.raises(kind, match=words):
                await asked(prompts, what)
            return [await asked(prompts, "hi"), await asked(prompts, "hi")]

    assert asyncio.run(several()) == [FINE, FINE]


def test_a_process_that_was_killed_costs_no_request(tmp_path: Path) -> None:
    """Twice in the middle of a job, and between two jobs."""

    async def several() -> list[list[int]]:
        async with started(hostile_text, workers=1) as prompts:
            first = await asked(prompts, f"crash twice {tmp_path / 'mark'}")
            (process,) = multiprocessing.active_children()
            process.kill()
            process.join()
            return [first, await asked(prompts, "hi")]

    assert asyncio.run(several()) == [FINE, FINE]


def test_a_process_that_was_killed_at_its_start(tmp_path: Path) -> None:
    worker = PromptWorker(partial(open_third_time, tmp_path / "mark"), 1 << 30)
    try:
        assert not isinstance(worker.ask(PromptJob("abc", CONTEXT)), MlccError)
    finally:
        worker.close()
    with pytest.raises(BusyError, match="died while it started"):
        PromptWorker(open_never, 1 << 30).ask(PromptJob("abc", CONTEXT))


def test_a_start_that_the_system_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [BrokenPipeError(), OSError("no pipe left")]
    start = PromptWorker._start

    def starting(worker: PromptWorker) -> None:
        if refusals:
            raise refusals.pop()
        start(worker)

    monkeypatch.setattr(PromptWorker, "_start", starting)
    worker = PromptWorker(toy_text, 1 << 30)
    try:
        assert not isinstance(worker.ask(PromptJob("abc", CONTEXT)), MlccError)
    finally:
        worker.close()
    refusals[:] = [OSError("no pipe left")] * prompt_pool.STARTS
    with pytest.raises(BusyError, match="died while it started"):
        PromptWorker(toy_text, 1 << 30).ask(PromptJob("abc", CONTEXT))


def test_the_start_of_a_process_is_not_counted_as_its_jobs_time() -> None:
    worker = PromptWorker(open_slowly, 1 << 30)
    try:
        assert not isinstance(worker.ask(PromptJob("abc", CONTEXT), JOB_S), MlccError)
    finally:
        worker.close()


@pytest.mark.parametrize("own", [True, False], ids=["its bound", "the request's"])
def test_one_that_takes_too_long_is_ended_and_the_next_is_answered(own: bool) -> None:
    async def several() -> list[int]:
        async with started(hostile_text, workers=1, longest_s=1 if own else 4) as prompts:
            await asked(prompts, "hi")
            with pytest.raises((CapacityError, RequestTimeoutError)):
                await asked(prompts, "sleep", 120 if own else 1)
            return await asked(prompts, "hi")

    assert asyncio.run(several()) == FINE


def test_large_prompts_leave_a_worker_to_the_others() -> None:
    async def several() -> tuple[list[int], int]:
        async with started(hostile_text, workers=2) as prompts:
            large = {"role": "user", "content": "sleep", "name": "n" * (LARGE + 1)}
            waiting = [asyncio.ensure_future(prompts.chat([large], 1, None)) for _ in range(3)]
            answers = [await asked(prompts, "hi") for _ in range(3)]
            assert answers == [FINE] * 3
            done = sum(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            return answers[0], done

    assert asyncio.run(several()) == (FINE, 0)


@pytest.mark.parametrize(("size", "most"), [(LARGE, 2), (LARGE + 1, 1)])
def test_how_many_are_read_at_once_is_decided_by_their_size(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    asked, answers = list[str](), threading.Event()

    def ask(worker: PromptWorker, job: PromptJob, longest_s: float) -> array[int]:
        asked.append(str(job.what))
        assert answers.wait(60)
        return array("i")

    monkeypatch.setattr(PromptWorker, "open", lambda worker: None)
    monkeypatch.setattr(PromptWorker, "ask", ask)

    async def several() -> None:
        async with started(toy_text, workers=3) as prompts:
            texts = [letter * size for letter in "ab"]
            waiting = [asyncio.ensure_future(prompts.text(t, CONTEXT, None)) for t in texts]
            small = asyncio.ensure_future(prompts.text("small", CONTEXT, None))
            while "small" not in asked:  # it was sent last
                await asyncio.sleep(0.001)
            assert asked[:-1] == texts[:most]
            answers.set()
            await asyncio.gather(*waiting, small)
            assert {*asked} == {*texts, "small"}

    asyncio.run(several())


def test_a_worker_that_cannot_start_says_why_to_each() -> None:
    async def twice() -> None:
        async with started(no_text, workers=1) as prompts:
            for _ in range(2):
                with pytest.raises(ArtifactError, match="tokenizer is gone"):
                    await asked(prompts, "hi")

    asyncio.run(twice())


def test_a_text_that_cannot_fit_is_refused_by_its_length() -> None:
    class Untouched(Letters):
        def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
            raise AssertionError("encoded")

    text = replace(toy_text(), tokenizer=Untouched())
    longest = CONTEXT * Letters.longest
    for ask in (
        partial(text.encode_prompt, "x" * (longest + 1)),
        partial(text.encode_chat, [{"role": "user", "content": "x" * longest}]),
    ):
        with pytest.raises(InvalidRequestError, match=r"at least 51[35] tokens") as caught:
            ask(CONTEXT)
        assert caught.value.code == "context_length_exceeded"
    assert len(toy_text().encode_prompt("x" * longest, CONTEXT)) == longest


def test_a_timeout_costs_no_other_request_a_process() -> None:
    """A request with an expired timeout does not end the prompt process of later requests."""

    async def run() -> None:
        async with started(toy_text, workers=1) as prompts:
            wanted = await prompts.text("abc", CONTEXT, None)
            for _ in range(20):
                with pytest.raises(RequestTimeoutError, match="'timeout' of the request"):
                    await prompts.text("abc", CONTEXT, 0)
                assert await prompts.text("abc", CONTEXT, 30) == wanted

    asyncio.run(run())


def test_a_worker_that_is_closed_answers_no_more() -> None:
    worker = PromptWorker(hostile_text, 1 << 30)
    job = PromptJob([{"role": "user", "content": "sleep"}], CONTEXT)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(worker.ask, job)
        while not multiprocessing.active_children():
            time.sleep(0.01)
        worker.close()
        assert isinstance(waiting.result(), CapacityError)
    assert isinstance(worker.ask(job), CapacityError)


def test_a_structure_is_checked_once_and_within_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, float]] = []

    def ask(worker: PromptWorker, job: PromptJob, longest_s: float) -> array[int]:
        asked.append((job.what, longest_s))
        return array("i")

    monkeypatch.setattr(PromptWorker, "open", lambda worker: None)
    monkeypatch.setattr(PromptWorker, "ask", ask)
    monkeypatch.setattr(prompt_pool, "KNOWN", 2)
    a, b, c = (Structure("regex", text, "f") for text in "abc")

    async def run() -> None:
        async with started(toy_text) as prompts:
            for structure in (a, a, b, a, c, a, b):  # c takes the place of b, the least recent
                await prompts.structure(structure, 60)
            await prompts.text("hi", CONTEXT, 60)

    asyncio.run(run())
    assert asked == [
        *((structure, prompt_pool.STRUCTURE_S) for structure in (a, b, c, b)),
        ("hi", prompt_pool.LONGEST_S),
    ]


def test_a_large_prompt_that_is_cancelled_while_it_waits_keeps_no_other_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers = list[str](), threading.Event()

    def ask(worker: PromptWorker, job: PromptJob, longest_s: float) -> array[int]:
        asked.append(str(job.what)[:5])
        assert answers.wait(60)
        return array("i")

    monkeypatch.setattr(PromptWorker, "open", lambda worker: None)
    monkeypatch.setattr(PromptWorker, "ask", ask)

    async def several() -> None:
        async with started(toy_text, workers=1) as prompts:
            small = asyncio.ensure_future(prompts.text("small", CONTEXT, None))
            while not asked:
                await asyncio.sleep(0.001)
            turn = PromptJob("x" * (LARGE + 1), CONTEXT)
            waiting = asyncio.ensure_future(prompts._turn(turn, LARGE + 1))
            while not prompts._large.locked():
                await asyncio.sleep(0.001)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled() and not prompts._large.locked()
            answers.set()
            await small
            await asyncio.wait_for(prompts.text("y" * (LARGE + 1), CONTEXT, None), 60)
            assert asked == ["small", "yyyyy"]

    asyncio.run(several())


def test_a_closed_pool_has_no_process() -> None:
    async def work() -> None:
        async with started(toy_text) as prompts:
            await asyncio.gather(*(prompts.text("hi", CONTEXT, 60) for _ in range(8)))
            while len(multiprocessing.active_children()) < prompt_pool.WORKERS:
                await asyncio.sleep(0.01)

    asyncio.run(work())
    end = time.monotonic() + 60
    while multiprocessing.active_children():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("large", [True, False])
def test_a_process_more_starts_once_one_is_too_few(
    monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """One prompt after another takes one; a large one leaves another to those that come next."""
    opened, answers = set[PromptWorker](), threading.Event()

    def ask(worker: PromptWorker, job: PromptJob, longest_s: float) -> array[int]:
        assert job.what == "small" or answers.wait(60)
        return array("i")

    monkeypatch.setattr(PromptWorker, "open", lambda worker: opened.add(worker))
    monkeypatch.setattr(PromptWorker, "ask", ask)

    async def several() -> None:
        async with started(toy_text, workers=3) as prompts:
            for _ in range(4):
                await prompts.text("small", CONTEXT, None)
            assert len(opened) == 1
            texts = ["x" * (LARGE + 1)] if large else ["a", "b"]
            waiting = [asyncio.ensure_future(prompts.text(t, CONTEXT, None)) for t in texts]
            while len(opened) < 2:
                await asyncio.sleep(0.001)
            answers.set()
            await asyncio.gather(*waiting)
            await prompts.text("small", CONTEXT, None)
            assert len(opened) == 2

    asyncio.run(several())


def test_a_refused_prompt_is_freed_without_a_collection() -> None:
    """In a server those wait, and a prompt may have megabytes."""

    async def refused() -> weakref.ref[Any]:
        async with started(toy_text, workers=1) as prompts:
            try:
                await prompts.text("x" * (CONTEXT * Letters.longest + 1), CONTEXT, None)
            except InvalidRequestError as error:
                return weakref.ref(error)
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        error = asyncio.run(refused())
        assert eventually(lambda: error() is None)  # the pool's thread lets go a moment later
    finally:
        gc.enable()


def test_the_memory_of_the_largest_images() -> None:
    """50 million pixels of 24 bytes, and 20 MB of files four times: 1.28 GB, as the guide says."""
    assert prompt_worker.IMAGE_MEMORY_BYTES == 1_280_000_000


def test_a_prompt_with_half_a_surrogate_pair_is_written_as_it_is() -> None:
    async def work() -> str:
        async with started(toy_text, workers=1) as prompts:
            return await prompts.written([{"role": "user", "content": "a\ud800"}], None)

    assert "a\ud800" in asyncio.run(work())
