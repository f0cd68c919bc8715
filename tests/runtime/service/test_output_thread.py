"""The output thread: sends events in order, with their text, and stops after an error."""

from __future__ import annotations

from threading import Event as Flag
from threading import get_ident
from typing import Any

import pytest

from mlcc.engine import Finished, Request, SamplingParams, TextDelta
from mlcc.engine.text.detokenizer import DeferredText
from mlcc.errors import ArtifactError, MlccError
from mlcc.worker.messages import Accepted, Events, Reply
from mlcc.worker.worker import MAX_QUEUED, OutputThread

END = Finished("a", "length", 1, 2)


class Letters:
    """Token 7 cannot be read."""

    def __init__(self, error: Exception) -> None:
        self.error, self.threads = error, set[int]()

    def decode(self, ids: Any, /) -> str:
        self.threads.add(get_ident())
        if 7 in ids:
            raise self.error
        return "".join(chr(97 + i) for i in ids)


def asked(name: str = "a", stop: tuple[str, ...] = ()) -> Request:
    return Request(name, [1], SamplingParams(max_tokens=9, stop=stop))


def delta(token: int, name: str = "a", text: str = "") -> TextDelta:
    return TextDelta(name, text, (token,), (0.0,))


def test_text_is_made_in_its_thread_and_nothing_overtakes() -> None:
    replies: list[Reply] = []
    letters = Letters(ArtifactError("no"))
    thread = OutputThread(replies.append, DeferredText(letters))
    thread.begin(asked())
    thread.send(Accepted("a"))
    thread.begin(asked("b", ("z",)))  # the engine writes it
    thread.send(Events([delta(1), delta(2, "b", "x")]))
    thread.send(Events([delta(2), END]))
    thread.close()
    assert replies == [
        Accepted("a"),
        Events([delta(1, text="b"), delta(2, "b", "x")]),
        Events([delta(2, text="c"), END]),
    ]
    assert get_ident() not in letters.threads
    assert [*thread.take_failed()] == []


@pytest.mark.parametrize("error", [ArtifactError("the tokenizer failed"), ValueError("a bug")])
def test_text_that_cannot_be_made_fails_its_request_alone(error: Exception) -> None:
    replies: list[Reply] = []
    thread = OutputThread(replies.append, DeferredText(Letters(error)))
    thread.begin(asked())
    thread.begin(asked("b"))
    thread.send(Events([delta(7), delta(1, "b")]))
    thread.send(Events([delta(1), delta(2, "b"), END]))
    thread.begin(asked())  # the name is free again
    thread.send(Events([delta(1)]))
    thread.close()
    first, second, third = [reply.events for reply in replies if isinstance(reply, Events)]
    end = first[0]
    assert isinstance(end, Finished)
    assert (end.request_id, end.reason) == ("a", "error")
    assert isinstance(end.error, MlccError)
    assert ("tokenizer" in str(end.error)) == isinstance(error, ArtifactError)
    assert first[1:] == [delta(1, "b", "b")]
    assert second == [delta(2, "b", "c")], "later events of the request are dropped"
    assert third == [delta(1, text="b")]
    assert [*thread.take_failed()] == ["a"], "the engine cancels it"
    assert [*thread.take_failed()] == [], "reported once"


@pytest.mark.parametrize("error", [ArtifactError("the tokenizer failed"), ValueError("a bug")])
def test_a_request_whose_text_cannot_begin_ends_alone(error: Exception) -> None:
    replies: list[Reply] = []
    thread = OutputThread(replies.append, DeferredText(Letters(error)))
    thread.begin(asked(), [7, 1])  # output of another engine
    thread.begin(asked("b"))
    thread.send(Events([delta(1), delta(1, "b")]))
    thread.close()
    first, second = [reply.events for reply in replies if isinstance(reply, Events)]
    assert [event.request_id for event in first] == ["a"]
    assert second == [delta(1, "b", "b")]
    assert [*thread.take_failed()] == ["a"]


def test_a_closed_pipe_does_not_block_the_output_thread() -> None:
    def send(reply: Reply) -> None:
        raise BrokenPipeError

    thread = OutputThread(send, DeferredText(Letters(ArtifactError("no"))))
    for _ in range(3 * MAX_QUEUED):
        thread.send(Accepted("a"))
    thread.close()


def test_a_slow_listener_holds_the_engine_up() -> None:
    go, count = Flag(), 0

    def send(reply: Reply) -> None:
        nonlocal count
        go.wait()
        count += 1

    thread = OutputThread(send, DeferredText(Letters(ArtifactError("no"))))
    for _ in range(MAX_QUEUED):
        thread.send(Accepted("a"))
    assert thread._queue.qsize() >= MAX_QUEUED - 1
    assert thread._queue.maxsize == MAX_QUEUED
    go.set()
    thread.close()
    assert count == MAX_QUEUED
