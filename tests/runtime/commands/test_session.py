"""A session in this process: the inputs that determine an answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Result
from mlcc.engine_args import EngineArgs
from mlcc.errors import DeviceError, OutOfMemoryError, UnsupportedError
from mlcc.loader import open_executor
from mlcc.model.session import Session
from tests.helpers.toy.toy_model import CAPACITY, open_toy


def sampled(seed: int | None) -> str:
    """A first answer at temperature 1, from a fresh session."""
    session = Session(open_toy())
    fields = {"temperature": 1.0, "seed": seed, "max_tokens": 40, "ignore_eos": True}
    return "".join(session.answer(session.model.text.encode_prompt("hello"), fields))


def test_only_a_given_seed_repeats() -> None:
    assert sampled(7) == sampled(7) != sampled(8)
    assert sampled(None) != sampled(None)  # 40 tokens of 96: equal by chance never


class FailsOnce(ToyExecutor):
    """Raises `error` at its seventh step, in `where`, and works again after."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__(CAPACITY)
        self._where, self._error = where, error
        self._calls = {"submit": 0, "collect": 0}

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        self._count("submit")
        return super().submit(batch, adjustments)

    def collect(self, ticket: int) -> Result:
        result = super().collect(ticket)
        self._count("collect")
        return result

    def _count(self, where: str) -> None:
        self._calls[where] += 1
        if where == self._where and self._calls[where] == 7:
            raise self._error


ERRORS = [
    DeviceError("the device failed"),
    OutOfMemoryError("the GPU's memory is full"),
    RuntimeError("a bug"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("where", ["submit", "collect"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_session_goes_on_after_a_step_that_failed_once(
    error: BaseException, where: str, depth: int
) -> None:
    """After an error in a step its result is discarded: else it would be taken for that of another
    step."""
    greedy = {"temperature": 0, "max_tokens": 20, "ignore_eos": True}
    prompt = open_toy().text.encode_prompt("hello")
    whole = "".join(Session(open_toy()).answer(prompt, greedy))
    executor = FailsOnce(where, error)
    executor.depth = depth
    session = Session(replace(open_toy(), executor=executor))
    with pytest.raises(type(error)):
        list(session.answer(prompt, greedy))
    assert "".join(session.answer(prompt, greedy)) == whole


def test_threads_are_refused_where_numpy_computes() -> None:
    target = SimpleNamespace(device="numpy", name="reference")
    artifact: Any = SimpleNamespace(folder=Path("x"), manifest=SimpleNamespace(target=target))
    with pytest.raises(UnsupportedError, match="--threads cannot be obeyed"):
        open_executor(artifact, EngineArgs(threads=2))
