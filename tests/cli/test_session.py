"""A session in this process: what an answer depends on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_model import CAPACITY, SlowToy, open_toy

from mlcc.api.requests import SamplingFields
from mlcc.engine.batch import Batch
from mlcc.errors import DeviceError, UnsupportedError
from mlcc.loading import open_executor
from mlcc.session import Session


def sampled(seed: int | None) -> str:
    """A first answer at temperature 1, from a fresh session."""
    session = Session(open_toy())
    fields = SamplingFields(temperature=1.0, seed=seed, max_tokens=40, ignore_eos=True)
    return "".join(session.answer(session.model.text.encode_prompt("hello"), fields))


def test_only_a_given_seed_repeats() -> None:
    assert sampled(7) == sampled(7) != sampled(8)
    assert sampled(None) != sampled(None)  # 40 tokens of 96: equal by chance never


class FailsOnce(SlowToy):
    """Fails at its fourth step and works again after."""

    def submit(self, batch: Batch) -> int:
        self._steps_left -= 1
        if self._steps_left == 0:
            raise DeviceError("the device failed")
        return super().submit(batch)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_session_goes_on_after_a_device_that_failed_once(depth: int) -> None:
    greedy = SamplingFields(temperature=0, max_tokens=20, ignore_eos=True)
    prompt = open_toy().text.encode_prompt("hello")
    whole = "".join(Session(open_toy()).answer(prompt, greedy))
    executor = FailsOnce(CAPACITY, 0, 7)
    executor.depth = depth
    model = replace(open_toy(), executor=executor)
    session = Session(model)
    with pytest.raises(DeviceError):
        list(session.answer(prompt, greedy))
    assert "".join(session.answer(prompt, greedy)) == whole


def test_threads_are_refused_where_numpy_computes() -> None:
    target = SimpleNamespace(device="numpy", name="reference")
    artifact: Any = SimpleNamespace(folder=Path("x"), manifest=SimpleNamespace(target=target))
    with pytest.raises(UnsupportedError, match="--threads cannot be obeyed"):
        open_executor(artifact, threads=2, max_batch=None, context=None)
