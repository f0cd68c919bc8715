"""Ollama's own Python client against the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.runtime.server.helpers.server_process import RunningServer, running

HELLO = [{"role": "user", "content": "hello"}]
GREEDY = {"temperature": 0, "num_predict": 12}


@pytest.fixture
def made(server: RunningServer) -> ollama.Client:
    return ollama.Client(host=server.url)


def test_a_chat_and_its_lines_say_the_same(made: ollama.Client) -> None:
    whole = made.chat("toy", HELLO, options=GREEDY)
    lines = list(made.chat("toy:latest", HELLO, options=GREEDY, stream=True))
    assert whole.done and whole.eval_count and whole.prompt_eval_count
    assert whole.prompt_eval_count == len("<user>hello<assistant>")
    text = "".join(line.message.content or "" for line in lines)
    assert text == whole.message.content and len(lines) > 2
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    last = lines[-1]
    assert last.done_reason == whole.done_reason and last.eval_count == whole.eval_count
    assert last.total_duration and last.prompt_eval_duration and last.eval_duration is not None
    assert last.total_duration == last.prompt_eval_duration + last.eval_duration
    assert whole.done_reason == "stop" or whole.eval_count == GREEDY["num_predict"]


def test_generate_through_the_template_is_a_chat_and_raw_is_none(made: ollama.Client) -> None:
    chat = made.chat("toy", HELLO, options=GREEDY)
    assert made.generate("toy", "hello", options=GREEDY).response == chat.message.content
    raw = made.generate("toy", "<user>hello<assistant>", raw=True, options=GREEDY)
    assert raw.response == chat.message.content
    answer = made.generate("toy", "abc", raw=True, options=GREEDY, logprobs=True, top_logprobs=2)
    assert answer.logprobs and answer.response == "".join(t.token for t in answer.logprobs)
    assert all(t.top_logprobs and len(t.top_logprobs) in (2, 3) for t in answer.logprobs)


def test_options_are_obeyed(made: ollama.Client) -> None:
    def ask(**options: Any) -> str:
        return made.generate("toy", "x", raw=True, options=options).response

    assert ask(seed=3, num_predict=20) == ask(seed=3, num_predict=20, num_ctx=8192)
    assert ask(seed=3, num_predict=20) != ask(seed=4, num_predict=20)
    text = ask(temperature=0, num_predict=8)
    assert ask(temperature=0, num_predict=8, stop=[text[3:5]]) == text[: text.index(text[3:5])]
    made.generate("toy", "x", raw=True, options={"seed": -1, "mirostat": 2, "num_predict": 2})


def test_model_descriptions(made: ollama.Client) -> None:
    assert [model.model for model in made.list().models] == ["toy:latest"]
    assert [model.context_length for model in made.ps().models] == [512]
    shown = made.show("toy:latest")
    assert shown.capabilities == ["completion"] and "<assistant>" in (shown.template or "")
    assert [line.status for line in made.pull("toy", stream=True)][-1] == "success"
    assert made.pull("toy").status == "success"
    assert made.generate("toy").done_reason == "load"


@pytest.mark.parametrize(
    ("ask", "status", "words"),
    [
        (lambda c: c.chat("other", HELLO), 404, "'other'"),
        (lambda c: list(c.chat("other", HELLO, stream=True)), 404, "'other'"),
        (lambda c: c.chat("toy", HELLO, think=True), 400, "thinking"),
        (lambda c: c.generate("toy", "x" * 600), 400, "prompt is too long"),
        (lambda c: list(c.generate("toy", "x" * 600, stream=True)), 400, "prompt is too long"),
        (lambda c: c.generate("toy", "x", suffix="y"), 400, "fills in the middle"),
        (lambda c: c.generate("toy", "x", images=[b"abc"]), 400, "images"),
        (lambda c: c.generate("toy", keep_alive=0), 400, "unloads nothing here"),
        (lambda c: c.embed("toy", "x"), 400, "no encoder model"),
        (lambda c: c.embeddings("toy", "x"), 400, "no encoder model"),
        (lambda c: c.pull("org/other"), 400, "mlcc pull org/other"),
        (lambda c: c.delete("toy"), 400, "not built"),
        (lambda c: c.copy("toy", "other"), 400, "not built"),
        (lambda c: c.create("other", from_="toy"), 400, "not built"),
    ],
)
def test_refusals_are_read(made: ollama.Client, ask: Any, status: int, words: str) -> None:
    with pytest.raises(ollama.ResponseError, match=words) as caught:
        ask(made)
    assert caught.value.status_code == status


def test_tools_and_tool_history_are_accepted(made: ollama.Client) -> None:
    """The toy calls no tools; the client sends a schema that it makes of a function."""

    def add(a: int, b: int) -> int:
        """Add.

        Args:
          a: one
          b: another
        """
        return a + b

    asked = made.chat("toy", HELLO, tools=[add], options=GREEDY)
    plain = made.chat("toy", HELLO, options=GREEDY)
    assert (asked.prompt_eval_count or 0) > (plain.prompt_eval_count or 0)
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    history = [
        *HELLO,
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_name": "add"},
    ]
    assert made.chat("toy", history, options=GREEDY).done


def test_head_of_the_root_says_that_a_server_is_there(server: RunningServer) -> None:
    answer = httpx.head(server.url)
    assert answer.status_code == 200 and not answer.content


@pytest.fixture(scope="module")
def dying() -> Iterator[RunningServer]:
    with running("--full-at", "6") as started:
        yield started


def test_a_stream_that_breaks_ends_with_an_error(dying: RunningServer) -> None:
    options = {"num_predict": 100, "ignore_eos": True}
    body = {"model": "toy", "prompt": "x", "raw": True, "options": options}
    lines = httpx.post(f"{dying.url}/api/generate", json=body, timeout=60).text.splitlines()
    assert len(lines) > 1 and [*json.loads(lines[-1])] == ["error"]
