"""Log-probabilities through a tab over the toy: chat and completions, whole and streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from tests.helpers.toy.toy_model import Letters
from tests.helpers.toy.toy_tab import ToyGpu, answer, open_tab

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 12,
    "temperature": 0,
}
CONTINUED: dict[str, Any] = {"prompt": "once", "max_tokens": 12, "temperature": 0}
TOP = 3


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class WatchedGpu(ToyGpu):
    """Remembers how many of the likeliest tokens each step was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[int] = []

    def submit(self, data: Any, sizes: Any, adjustments: Any = None) -> Any:
        self.wanted.append(memoryview(data).cast("i")[4])
        return super().submit(data, sizes, adjustments)


@in_loop
async def test_a_chats_are_those_of_its_text_whole_and_streamed() -> None:
    async with open_tab() as tab:
        body = {**ASKED, "logprobs": True, "top_logprobs": TOP}
        whole = (await answer(tab, CHAT, body)).json["choices"][0]
        content = whole["logprobs"]["content"]
        assert "".join(token["token"] for token in content) == whole["message"]["content"]
        for token in content:
            assert token.keys() == {"token", "logprob", "bytes", "top_logprobs"}
            assert bytes(token["bytes"]).decode() == token["token"]
            top = token["top_logprobs"]
            # The toy takes the likeliest; of its tokens one, the end token, has no text.
            assert TOP - 1 <= len(top) <= TOP
            assert top[0] == {name: token[name] for name in ("token", "logprob", "bytes")}
            assert sorted((t["logprob"] for t in top), reverse=True) == [t["logprob"] for t in top]
        events = (await answer(tab, CHAT, {**body, "stream": True})).events
        opening, *middle, end = [event["choices"][0] for event in events]
        assert opening["logprobs"] is None and end["logprobs"] is None
        assert [t for choice in middle for t in choice["logprobs"]["content"]] == content
        for choice in middle:
            logprobs = "".join(t["token"] for t in choice["logprobs"]["content"])
            assert choice["delta"]["content"] == logprobs


@in_loop
async def test_a_completions_have_offsets_and_the_token_itself() -> None:
    async with open_tab() as tab:
        whole = (await answer(tab, COMPLETIONS, {**CONTINUED, "logprobs": TOP})).json["choices"][0]
        logprobs, text = whole["logprobs"], whole["text"]
        assert "".join(logprobs["tokens"]) == text
        assert logprobs["text_offset"] == list(range(len(text)))
        for token, logprob, top in zip(
            logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
        ):
            assert top[token] == logprob == max(top.values()) and len(top) <= TOP
        events = (
            await answer(tab, COMPLETIONS, {**CONTINUED, "logprobs": 0, "stream": True})
        ).events
        pieces = [choice for event in events for choice in event["choices"] if choice["text"]]
        for name in ("tokens", "token_logprobs", "text_offset"):
            assert [x for piece in pieces for x in piece["logprobs"][name]] == logprobs[name]
        alone = [x for piece in pieces for x in piece["logprobs"]["top_logprobs"]]
        pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
        assert alone == [{token: logprob} for token, logprob in pairs]


@in_loop
async def test_tokens_cut_off_by_a_stop_string_are_reported_nowhere() -> None:
    async with open_tab() as tab:
        usual = (await answer(tab, COMPLETIONS, CONTINUED)).json["choices"][0]["text"]
        stop = usual[4:7]
        for stream in (False, True):
            body = {**CONTINUED, "logprobs": 0, "stop": [stop], "stream": stream}
            reply = await answer(tab, COMPLETIONS, body)
            choices = [e["choices"][0] for e in reply.events] if stream else reply.json["choices"]
            logprobs = [t for c in choices if c["logprobs"] for t in c["logprobs"]["tokens"]]
            assert "".join(logprobs) == usual[: usual.index(stop)]


@in_loop
async def test_a_step_without_requests_for_logprobs_asks_for_none() -> None:
    gpu = WatchedGpu()
    async with open_tab(gpu=gpu) as tab:
        plain = (await answer(tab, CHAT, ASKED)).json["choices"][0]
        assert plain["logprobs"] is None and not any(gpu.wanted)
        logprobs = (await answer(tab, CHAT, {**ASKED, "logprobs": True})).json["choices"][0]
        assert logprobs["message"] == plain["message"] and not any(gpu.wanted)
        await answer(tab, CHAT, {**ASKED, "logprobs": True, "top_logprobs": 20})
        assert max(gpu.wanted) == 20


@in_loop
async def test_they_are_those_of_the_logits_after_a_bias() -> None:
    async with open_tab() as tab:
        bias = {str(Letters().encode("x", add_special_tokens=False)[0]): 100}
        body = {**CONTINUED, "max_tokens": 2, "logprobs": 1, "logit_bias": bias}
        logprobs = (await answer(tab, COMPLETIONS, body)).json["choices"][0]["logprobs"]
        assert logprobs["tokens"] == ["x", "x"]
        # The toy's are its logits less 3, and not normalized: what was added is seen in them.
        assert all(logprob > 0 for logprob in logprobs["token_logprobs"])


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {**ASKED, "top_logprobs": 1}, "top_logprobs"),
        (CHAT, {**ASKED, "logprobs": False, "top_logprobs": 1}, "top_logprobs"),
        (CHAT, {**ASKED, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {**ASKED, "logprobs": 1}, "logprobs"),
        (COMPLETIONS, {**CONTINUED, "logprobs": 21}, "logprobs"),
        (COMPLETIONS, {**CONTINUED, "logprobs": -1}, "logprobs"),
        (COMPLETIONS, {**CONTINUED, "logprobs": True}, "logprobs"),
    ],
)
@in_loop
async def test_what_cannot_be_is_refused_by_name(
    path: str, fields: dict[str, Any], param: str
) -> None:
    async with open_tab() as tab:
        reply = await answer(tab, path, fields)
        assert reply.status == 400 and reply.json["error"]["param"] == param
