"""`from mlcc import Engine`, over the toy: the server's answers and errors without a server."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest

import mlcc
from mlcc import AsyncEngine, Engine
from mlcc.api.errors import EngineDiedError, NotFoundError
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch
from mlcc.errors import DeviceLostError, InvalidRequestError, MlccError, OutOfMemoryError
from mlcc.model.model import Model
from tests.helpers.toy.toy_model import CAPACITY, SlowToy, open_toy, toy_text

HELLO = [{"role": "user", "content": "hello"}]
LONG = {"messages": HELLO, "max_tokens": 400, "ignore_eos": True}


class Watched(SlowToy):
    """Remembers the most sequences of a step, and can hold steps back until `go`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(CAPACITY, **options)
        self.most = 0
        self.go = Event()
        self.go.set()
        self.closed = False

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        assert self.go.wait(60)
        self.most = max(self.most, batch.num_sequences)
        return super().submit(batch, adjustments)

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def toy() -> Watched:
    return Watched()


@pytest.fixture
def engine(toy: Watched) -> Iterator[Engine]:
    with Engine.of(lambda: Model(toy_text(), toy)) as made:
        yield made


def stats(engine: Engine | AsyncEngine) -> dict[str, Any]:
    """The engine's counters, as /health tells them."""
    caller = engine._caller
    return dict(caller.start(caller.ask("GET", "/health")).result(60)["engine"])


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def idle(engine: Engine | AsyncEngine) -> bool:
    now = stats(engine)
    return now["running"] == now["waiting"] == 0 and now["pages_free"] == now["pages"]


def ask(engine: Engine, text: str, **fields: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return engine.chat.completions.create(
        messages=messages, **{"temperature": 0, "max_tokens": 30, **fields}
    )


def test_an_answer_is_the_servers_json_read_by_attribute(engine: Engine) -> None:
    answer = ask(engine, "hello", max_tokens=9, ignore_eos=True)
    assert (answer.object, answer.model, engine.model) == ("chat.completion", "toy", "toy")
    choice = answer.choices[0]
    assert choice.finish_reason == "length" and choice["message"]["role"] == "assistant"
    assert answer.usage.completion_tokens == 9 == answer.to_dict()["usage"]["completion_tokens"]
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    with pytest.raises(AttributeError, match="no 'contents'; there are role, content"):
        _ = choice.message.contents
    again = engine.chat.completions.create(messages=[*HELLO, choice.message, *HELLO], max_tokens=1)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens


def test_streams_bring_the_same_text(engine: Engine) -> None:
    ask(engine, "hello")  # so that it is cached for both
    whole = ask(engine, "hello")
    options = {"include_usage": True}
    chunks = list(ask(engine, "hello", stream=True, stream_options=options))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    prompts = ["one", "two"]
    asked = {"prompt": prompts, "max_tokens": 7, "temperature": 0}
    texts = ["", ""]
    for chunk in engine.completions.create(**asked, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in engine.completions.create(**asked).choices]


def test_threads_are_answered_together_as_alone(toy: Watched, engine: Engine) -> None:
    texts = [f"question {i}" for i in range(12)]
    alone = [ask(engine, text).choices for text in texts]
    assert toy.most == 1
    toy.go.clear()
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(ask, engine, text) for text in texts]
        until(lambda: engine._caller._client.in_flight == 12)
        toy.go.set()
        assert [answer.result(60).choices for answer in answers] == alone
    assert toy.most == CAPACITY.max_batch


def test_tasks_are_answered_together_as_alone(toy: Watched) -> None:
    async def main() -> None:
        async with AsyncEngine.of(lambda: Model(toy_text(), toy)) as engine:

            async def streamed(i: int) -> str:
                stream = await engine.chat.completions.create(
                    messages=[{"role": "user", "content": f"{i}"}], stream=True, temperature=0,
                    max_tokens=20,
                )  # fmt: skip
                return "".join(
                    [c.choices[0].delta.content or "" async for c in stream if c.choices]
                )

            alone = [await streamed(i) for i in range(9)]
            assert toy.most == 1 and any(alone)
            toy.go.clear()
            tasks = [asyncio.create_task(streamed(i)) for i in range(9)]
            while engine._caller._client.in_flight < 9:
                await asyncio.sleep(0.005)
            toy.go.set()
            assert await asyncio.gather(*tasks) == alone
            assert toy.most == CAPACITY.max_batch
        assert toy.closed

    asyncio.run(main())


@pytest.mark.parametrize("how", ["close", "with", "forget"])
def test_a_stream_that_is_left_ends_its_answer(how: str, toy: Watched, engine: Engine) -> None:
    toy._delay = 0.002
    stream = engine.chat.completions.create(**LONG, stream=True)
    if how == "with":
        with stream:
            next(stream)
    else:
        next(stream)
        assert stats(engine)["running"] == 1
        if how == "close":
            stream.close()
            stream.close()
    del stream
    gc.collect()
    until(lambda: idle(engine))
    assert stats(engine)["sampled_tokens"] < 400
    assert ask(engine, "hello", max_tokens=3).choices


def test_a_cancelled_task_ends_its_answer(toy: Watched) -> None:
    toy._delay = 0.002

    async def main() -> None:
        async with AsyncEngine.of(lambda: Model(toy_text(), toy)) as engine:
            task = asyncio.create_task(engine.chat.completions.create(**LONG))
            stream = await engine.chat.completions.create(**LONG, stream=True)
            await stream.__anext__()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await stream.close()
            while not await asyncio.to_thread(idle, engine):
                await asyncio.sleep(0.005)
            assert stats(engine)["sampled_tokens"] < 800

    asyncio.run(main())


def test_refusals_are_typed_and_name_the_field(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ask(engine, "hi", temperature=-1)
    assert caught.value.param == "temperature"
    for stream in (False, True):
        with pytest.raises(NotFoundError, match="'toy', not 'other'"):
            ask(engine, "hi", model="other", stream=stream)
        with pytest.raises(InvalidRequestError, match="maximum context length is 512 tokens"):
            ask(engine, "x" * 600, stream=stream)
    with pytest.raises(InvalidRequestError, match="not JSON"):
        ask(engine, "hi", stop=object())


def test_a_full_device_costs_the_live_answers_only() -> None:
    with Engine.of(partial(open_toy, full_at=9)) as engine:
        stream = engine.chat.completions.create(**LONG, stream=True)
        with pytest.raises(OutOfMemoryError):
            list(stream)
        assert ask(engine, "hello", max_tokens=400, ignore_eos=True).usage.completion_tokens == 400


class Lost(SlowToy):
    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        raise DeviceLostError("the GPU was lost")


def test_a_lost_device_is_reported_to_all_requests() -> None:
    with Engine.of(lambda: Model(toy_text(), Lost(CAPACITY))) as engine:
        for _ in range(2):
            with pytest.raises(EngineDiedError, match=r"the GPU was lost.*Create another engine"):
                ask(engine, "hello")


def test_an_engine_that_is_forgotten_anywhere_gives_its_memory_back(toy: Watched) -> None:
    """The collector runs in any thread, also in those that it ends."""
    engine = Engine.of(lambda: Model(toy_text(), toy))
    loop = engine._caller._loop
    holding = [engine]
    del engine
    loop.call_soon_threadsafe(holding.clear)
    until(lambda: toy.closed and loop.is_closed())


def test_closing_fails_waiting_and_later_requests(toy: Watched) -> None:
    engine = Engine.of(lambda: Model(toy_text(), toy))
    toy.go.clear()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            engine.chat.completions.create(**LONG)
        except MlccError as error:
            errors.append(error)

    waiting = Thread(target=wait)
    waiting.start()
    until(lambda: engine._caller._client.in_flight == 1)
    closing = Thread(target=engine.close)
    closing.start()
    toy.go.set()
    closing.join(60)
    waiting.join(60)
    engine.close()
    assert toy.closed and isinstance(errors[0], EngineDiedError)
    with pytest.raises(EngineDiedError, match="create another"):
        ask(engine, "hello")


def test_a_model_that_does_not_open_raises_what_it_is() -> None:
    def refuse() -> Model:
        raise OutOfMemoryError("no room")

    with pytest.raises(OutOfMemoryError, match="no room"):
        Engine.of(refuse)
    with pytest.raises(MlccError, match="nosuch"):
        Engine("nosuch")


def test_import_mlcc_stays_light() -> None:
    code = (
        "import sys, mlcc, mlcc.engine; assert mlcc.engine.Engine.__module__ == "
        "'mlcc.engine.engine'; heavy = {'asyncio', 'jinja2', 'click', 'numpy', 'tvm', 'mlcc.local'}"
        "; print(sorted(heavy & set(sys.modules))); from mlcc import Engine, AsyncEngine"
        "; print(Engine.__module__, {'tvm', 'starlette', 'click'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "mlcc.local.engine set()"], done
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = mlcc.Motor


def test_python_ends_without_a_close(tmp_path: Any) -> None:
    code = (
        "from tests.helpers.toy.toy_model import open_toy; from mlcc import Engine;"
        "e = Engine.of(open_toy);"
        "a = e.completions.create(prompt='x', max_tokens=2, temperature=0);"
        "print(a.usage.completion_tokens)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
