"""Stored conversations: a turn is stored once, without unknown fields, and what a request loads is
bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar

import pytest

from mlcc.api.errors import CancelledError, NotFoundError
from mlcc.api.openai_responses.request import parse_responses
from mlcc.errors import InvalidRequestError
from mlcc.service.http.json_pieces import MANY_CHARACTERS, parse_lists
from mlcc.service.response_store import conversations as module
from mlcc.service.response_store.conversations import (
    MOST_AT_ONCE,
    MUCH_BYTES,
    Conversations,
    turn_of,
)
from mlcc.service.response_store.store import MemoryResponseStore


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


async def talk(conversations: Conversations, *texts: str) -> str:
    """Store a conversation of these turns; returns the last id."""
    previous = None
    for number, text in enumerate(texts):
        name = f"resp_{number}"
        answer = {"id": name, "output": [item(f"re {text}")], "status": "completed"}
        await conversations.keep("t", name, turn_of(answer, [item(text)], previous))
        previous = name
    assert previous is not None
    return previous


def test_a_large_turn_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(text: str) -> dict[str, list[Any]]:
        threads.append(threading.current_thread())
        return parse_lists(text)

    async def work(text: str) -> None:
        conversations = Conversations()
        last = await talk(conversations, text)
        async with conversations.loading() as loading:
            assert await conversations.before("t", last, loading) == [
                item(text),
                item(f"re {text}"),
            ]
            reference = [{"type": "item_reference", "id": "msg_0_0"}]
            assert await conversations.resolved("t", reference, loading) == reference
        assert (await conversations.get("t", last)).input == [item(text)]

    monkeypatch.setattr(module, "parse_lists", noted)
    run(work("a" * MANY_CHARACTERS))
    assert len(threads) == 3 and threading.main_thread() not in threads
    run(work("a"))
    assert threads[3:] == [threading.main_thread()] * 3


def test_a_turn_is_stored_once() -> None:
    async def work() -> None:
        kept = MemoryResponseStore()
        conversations = Conversations(kept)
        last = await talk(conversations, *"abcdefgh")
        async with conversations.loading() as loading:
            items = await conversations.before("t", last, loading)
        assert [each["content"] for each in items] == [
            x for c in "abcdefgh" for x in (c, f"re {c}")
        ]
        turns = [await kept.get("t", f"resp_{n}") for n in range(8)]
        assert len({turn.size for turn in turns if turn}) == 1, "no turn holds another"
        assert (await conversations.get("t", last)).response["output"] == [item("re h")]

    run(work())


def test_without_an_earlier_turn_a_conversation_is_not_continued_and_is_still_listed() -> None:
    async def work() -> None:
        kept = MemoryResponseStore()
        conversations = Conversations(kept)
        last = await talk(conversations, "a", "b", "c")
        kept._tenants["t"].remove("resp_0")
        async with conversations.loading() as loading:
            with pytest.raises(InvalidRequestError) as error:
                await conversations.before("t", last, loading)
            assert error.value.code == "previous_response_not_found"
            found = await conversations.history("t", last, loading, whole=False)
        assert found is not None and [each["content"] for each in found] == [
            "b",
            "re b",
            "c",
            "re c",
        ]

    run(work())


def test_what_one_request_loads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOADED_BYTES", 1000)

    async def work() -> None:
        conversations = Conversations()
        last = await talk(conversations, "a" * 200, "b" * 200)
        async with conversations.loading() as loading:
            with pytest.raises(InvalidRequestError, match="at most 1000 are loaded") as error:
                await conversations.before("t", last, loading)
        assert error.value.code == "context_length_exceeded"
        assert error.value.param == "previous_response_id"
        for name in ("aa", "bb"):
            given = [{"id": f"item_{name}_0", **item("x" * 600)}]
            await conversations.keep("t", f"resp_{name}", turn_of({"output": []}, given, None))
        wanted = [{"type": "item_reference", "id": f"item_{n}_0"} for n in ("aa", "bb")]
        async with conversations.loading() as loading:
            assert await conversations.resolved("t", wanted[:1], loading)
        async with conversations.loading() as loading:
            with pytest.raises(InvalidRequestError, match="are loaded"):
                await conversations.resolved("t", wanted, loading)

    run(work())


def test_requests_that_load_much_take_turns() -> None:
    async def work() -> None:
        conversations = Conversations()
        large = await talk(conversations, "x" * MUCH_BYTES)
        now = most = 0

        async def load() -> None:
            nonlocal now, most
            async with conversations.loading() as loading:
                await conversations.before("t", large, loading)
                await conversations.resolved(
                    "t", [{"type": "item_reference", "id": "item_0_0"}], loading
                )
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.001)
                now -= 1

        await asyncio.gather(*(load() for _ in range(8)))
        assert most == MOST_AT_ONCE

    run(work())


def test_unknown_fields_are_dropped_before_storing() -> None:
    junk: Any = [[[]] * 9]
    body = {
        "model": "toy",
        "input": [
            {"role": "user", "content": "a", "junk": junk, "status": junk, "id": "mine"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "b", "annotations": junk, "x": junk}],
                "phase": None,
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "y": junk},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s", "z": junk}]},
        ],
    }
    assert parse_responses(body).items() == [
        {"type": "message", "role": "user", "content": "a", "id": "mine"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
    ]


def test_what_is_not_stored_has_ended_or_runs() -> None:
    """Answers that are deleted and cancelled."""

    class Running:
        answer: ClassVar[dict[str, str]] = {"id": "resp_live"}
        failed: ClassVar[list[BaseException]] = []

        def snapshot(self) -> dict[str, str]:
            return {"status": "in_progress"}

        def fail(self, error: BaseException) -> None:
            self.failed.append(error)

    async def work() -> None:
        conversations, running = Conversations(), Running()
        last = await talk(conversations, "a")
        for unknown in (conversations.delete, conversations.get, conversations.cancel):
            with pytest.raises(NotFoundError, match="'resp_none' not found"):
                await unknown("t", "resp_none")
            with pytest.raises(NotFoundError):
                await unknown("another", last)
        with pytest.raises(InvalidRequestError, match=r"has ended \(completed\)"):
            await conversations.cancel("t", last)
        conversations.begin("t", running, running)  # type: ignore[arg-type]
        assert await conversations.cancel("t", "resp_live") == {"status": "cancelled"}
        assert [type(error) for error in running.failed] == [CancelledError]
        assert conversations.current("t", "resp_live") == {"status": "in_progress"}
        assert conversations.current("another", "resp_live") is None
        conversations.end("t", running)  # type: ignore[arg-type]
        with pytest.raises(NotFoundError):
            await conversations.cancel("t", "resp_live")
        await conversations.delete("t", last)
        with pytest.raises(NotFoundError):
            await conversations.get("t", last)

    run(work())
