"""A session in this process: what an answer depends on."""

from __future__ import annotations

from toy_model import open_toy

from mlcc.api.requests import SamplingFields
from mlcc.session import Session


def sampled(seed: int | None) -> str:
    """A first answer at temperature 1, from a fresh session."""
    session = Session(open_toy())
    fields = SamplingFields(temperature=1.0, seed=seed, max_tokens=40, ignore_eos=True)
    return "".join(session.answer(session.model.text.encode_prompt("hello"), fields))


def test_only_a_given_seed_repeats() -> None:
    assert sampled(7) == sampled(7) != sampled(8)
    assert sampled(None) != sampled(None)  # 40 tokens of 96: equal by chance never
