"""The output thread: sends events in order, with their text, and stops after an error."""

from __future__ import annotations

from threading import Event as Flag
from threading import get_ident
from typing import Any

import pytest

from mlcc.engine import Finished, Request, SamplingParams, TextDelta
from mlcc.engine.text.detokenizer import DeferredText
from mlcc.errors import ArtifactError, MlccError
from mlcc.worker.messages import Accepted, Dropped, Events, Reply
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
    assert thread.take_error() is None


@pytest.mark.parametrize("error", [ArtifactError("the tokenizer failed"), ValueError("a bug")])
def test_text_that_cannot_be_made_fails_the_running_requests(error: Exception) -> None:
    replies: list[Reply] = []
    thread = OutputThread(replies.append, DeferredText(Letters(error)))
    thread.begin(asked())
    thread.send(Events([delta(7)]))
    thread.send(Events([END]))
    thread.close()
    dropped, after = replies
    assert isinstance(dropped, Dropped)
    assert after == Events([END])
    failed = thread.take_error()
    assert failed is dropped.error
    assert isinstance(failed, MlccError)
    assert ("tokenizer" in str(failed)) == isinstance(error, ArtifactError)
    assert thread.take_error() is None, "reported once"


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
