"""Speculation on real kernels: greedy answers are equal up to ties, sampled ones come from the same
distribution, and the model drafts for itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Event, Finished
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.engine.spec_decode.speculator import Speculator
from mlcc.engine_args import EngineArgs
from mlcc.errors import UnsupportedError
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc.model.speculation import Speculation
from mlcc.util.fast_dataclass import fast_dataclass
from tests.e2e.demo.conftest import Compiled, Opened
from tests.e2e.demo.equality import compare

BOUNDS = {"cpu": ("q8", 0.0), "vulkan": ("q4", 2e-2), "reference": ("f32", 1e-3)}
"""Target -> (recipe, how close the candidates of a tie must be): rows that are computed together
are rounded differently, though not on CPUs."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
QUESTION = "How much is 21 + 21? Say it three times: 21 + 21 = 42, 21 + 21 = 42, 21 + 21 ="


def on(target: str) -> Any:
    return pytest.param(target, marks=pytest.mark.feature("speculation", target, "runs"))


def answered(model: Model, *requests: Request) -> tuple[dict[str, list[int]], list[Finished]]:
    """The tokens of each, and how they ended."""
    driver, ends = Driver(model), list[Finished]()
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    for request in requests:
        driver.engine.add(request)
    while driver.has_work:
        events: list[Event] = driver.step()
        for event in events:
            if isinstance(event, Finished):
                ends.append(event)
            else:
                tokens[event.request_id] += event.token_ids
    return tokens, ends


@fast_dataclass(frozen=True)
class Always(Speculation):
    """All draft tokens are verified, whatever the measured cost."""

    def speculator(self, capacity: Capacity, draft: DraftModel | None = None) -> Speculator:
        made = super().speculator(capacity, draft)
        made.allocate = lambda acceptance, most: most  # type: ignore[method-assign]
        made.worthwhile = lambda acceptance, most, more=0.0: most  # type: ignore[method-assign]
        made.budget.allows = lambda decodes: True  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize("target", [*map(on, BOUNDS)])
def test_greedy_answers_are_the_plain_ones(opened: Opened, target: str) -> None:
    quant, bound = BOUNDS[target]
    model = opened(quant, target)
    prompt = model.text.encode_prompt(QUESTION).tolist()
    plain, _ = answered(model, Request("a", prompt, GREEDY))
    speculating = replace(model, speculation=Always("lookup", 4))
    request = Request("a", prompt, GREEDY, prediction=prompt + plain["a"])
    guessed, ends = answered(speculating, request)
    compare(model, prompt, plain["a"], guessed["a"], bound)
    both = zip(plain["a"], guessed["a"], strict=True)
    same = next((i for i, (one, other) in enumerate(both) if one != other), GREEDY.max_tokens)
    assert ends[0].accepted_tokens >= same // 2 > 1  # behind a tie that fell otherwise: few


def test_a_cpu_has_the_same_logits_with_drafts(opened: Opened) -> None:
    """To the bit, greedy and sampled, alone and beside others, over a boundary of key ranges; the
    same seed, so the same tokens."""
    model = opened("q8", "cpu")
    prompt = model.text.encode_prompt(QUESTION).tolist()
    long = replace(GREEDY, max_tokens=64, logprobs=0)
    all_params = long, replace(long, temperature=0.8, seed=4)

    def found(model: Model, guesses: list[list[int]]) -> list[list[float]]:
        driver, logprobs = Driver(model), [list[float]() for _ in guesses]
        for i, guess in enumerate(guesses):
            tokens = prompt[: len(prompt) - i]
            driver.engine.add(Request(str(i), tokens, all_params[i], prediction=tokens + guess))
        while driver.has_work:
            for event in driver.step():
                if not isinstance(event, Finished):
                    logprobs[int(event.request_id)] += event.logprobs
        assert (driver.engine.stats().accepted_tokens > 20) is bool(guesses[0])
        return logprobs

    requests = [Request(str(i), prompt[: len(prompt) - i], p) for i, p in enumerate(all_params)]
    plain, _ = answered(model, *requests)
    speculating = replace(model, speculation=Always("lookup", 6))
    assert found(speculating, [plain["0"], plain["1"]]) == found(model, [[], []])


def test_sampled_answers_have_the_same_distribution(opened: Opened) -> None:
    """Two samples of the third token, with other seeds: chi-square, 5 groups, far from 0.1 %."""
    model, count = opened("q8", "cpu"), 300
    prompt = model.text.encode_prompt("The ").tolist()
    predicted, _ = answered(model, Request("a", prompt, replace(GREEDY, max_tokens=4)))
    sampling = SamplingParams(temperature=0.7, max_tokens=4, ignore_eos=True)
    found = []
    for first, one in ((0, model), (count, replace(model, speculation=Always("lookup")))):
        counts, drafted = Counter[int](), 0
        for seed in range(first, first + count, 2):  # few at once, so that rows are left
            requests = [
                Request(
                    str(s), prompt, replace(sampling, seed=s), prediction=prompt + predicted["a"]
                )
                for s in (seed, seed + 1)
            ]
            tokens, ends = answered(one, *requests)
            counts.update(output[2] for output in tokens.values())
            drafted += sum(end.drafted_tokens for end in ends)
        assert (drafted > 100) is (one is not model)
        found.append(counts)
    likely = [token for token, _ in (found[0] + found[1]).most_common(4)]
    both = [[counts[token] for token in likely] for counts in found]
    rows = [[*row, count - sum(row)] for row in both]
    square = sum((a - b) ** 2 / (a + b) for a, b in zip(*rows, strict=True) if a + b)
    assert square < 18.5


@pytest.mark.feature("drafts", "cpu", "runs")
def test_a_model_drafts_for_itself(compiled: Compiled) -> None:
    path = compiled("q8", "cpu")
    model = open_model(path, EngineArgs(speculate="draft:4", draft=path, kv_pages=64))
    try:
        prompt = model.text.encode_prompt("Once upon a time").tolist()
        all_params = (
            GREEDY,
            SamplingParams(temperature=0.8, max_tokens=40, seed=4, ignore_eos=True),
        )
        requests = [Request(str(i), prompt, params) for i, params in enumerate(all_params)]
        guessed, ends = answered(model, *requests)
        plain, _ = answered(replace(model, speculation=None, draft=None), *requests)
        drafted = sum(end.drafted_tokens for end in ends)
        accepted = sum(end.accepted_tokens for end in ends)
        # How many are drafted follows what steps cost here; that they are right does not.
        assert accepted >= 0.8 * drafted > 0, "the same model says the same"
        compare(model, prompt, plain["0"], guessed["0"], 0.05)
    finally:
        model.close()


def test_one_row_a_step_is_refused(compiled: Compiled) -> None:
    with pytest.raises(UnsupportedError, match="--max-rows 1"):
        open_model(compiled("q8", "cpu"), EngineArgs(max_rows=1, speculate="lookup"))
