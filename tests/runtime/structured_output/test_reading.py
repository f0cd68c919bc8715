"""Grammars are compiled beside the engine's steps: only the requests that need them wait."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from threading import Event

from mlcc.engine import Request
from mlcc.engine.sampling.grammar import Grammar, Structure
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.worker.worker import GrammarThread


class Anything:
    """A grammar that allows all tokens."""

    ended = failed = dead_end = False

    def allowed(self) -> array[int]:
        return array("i", [-1])

    def accept(self, token: int) -> None:
        pass

    def forced(self) -> Sequence[int]:
        return ()


class Slow:
    """Grammars of which `slow` is compiled only when the test allows it."""

    def __init__(self) -> None:
        self.begun, self.let = Event(), Event()

    def check(self, structure: Structure) -> None:
        self.open(structure)

    def open(self, structure: Structure) -> Grammar:
        if structure.text == "slow":
            self.begun.set()
            assert self.let.wait(60)
        if structure.text == "bad":
            raise InvalidRequestError("bad")
        if structure.text == "bug":
            raise ZeroDivisionError
        return Anything()


def asked(text: str) -> Request:
    return Request(text, [1], structure=Structure("regex", text))


def outcomes(thread: GrammarThread) -> dict[str, Grammar | MlccError]:
    """The outcomes of all queued grammars."""
    found: dict[str, Grammar | MlccError] = {}
    while thread.busy:
        found |= {request.id: grammar for request, grammar in thread.completed()}
    return found


def test_what_is_slow_is_not_waited_for_and_what_is_cancelled_does_not_come() -> None:
    slow = Slow()
    thread = GrammarThread(slow)
    for text in ("slow", "left", "good", "bad", "bug"):
        thread.open(asked(text))
    assert slow.begun.wait(60) and not [*thread.completed()] and thread.busy
    thread.cancel("left")
    thread.cancel("unknown")
    slow.let.set()
    found = outcomes(thread)
    assert found.keys() == {"slow", "good", "bad", "bug"}
    assert isinstance(found["slow"], Anything) and isinstance(found["good"], Anything)
    assert isinstance(found["bad"], InvalidRequestError)
    assert isinstance(found["bug"], MlccError) and found["bug"].http_status == 500
    thread.close()


def test_a_request_that_is_cancelled_while_it_is_read_is_forgotten() -> None:
    slow = Slow()
    thread = GrammarThread(slow)
    thread.open(asked("slow"))
    assert slow.begun.wait(60)
    thread.cancel("slow")
    slow.let.set()
    assert not thread.busy and not [*thread.completed()]
    thread.close()
