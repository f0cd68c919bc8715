"""Sequences with a grammar beside others: the tokens of a naive engine without batches, steps in
flight and jumps, which asks the grammar before every token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.sampling.grammar import Structure
from mlcc.engine.spec_decode.mtp import MtpLayer
from mlcc.errors import UnsupportedError
from tests.runtime.engine.helpers import naive
from tests.runtime.engine.helpers.drafting import Eager
from tests.runtime.engine.helpers.drive import SMALL, Driver, Got, small, toy_driver
from tests.runtime.engine.helpers.toy_grammar import END, ToyGrammar
from tests.runtime.engine.spec_decode.test_mtp import with_mtp

ANY = Structure("grammar", "toy", "grammar")
VOCAB = SMALL.vocab_size
CAPACITIES = (
    SMALL,
    small(pools=[9], context=32, max_step_tokens=6),
    small(CacheGroup("window", 4, 5), CacheGroup("state"), pools=[20, 4]),
)


def expected(request: Request, seed: int | None, arrival: int, capacity: Capacity) -> list[int]:
    """The expected output tokens, without the end token."""
    s, prompt = request.sampling, list(request.prompt)
    grammar = None if seed is None else ToyGrammar(seed, VOCAB)
    output: list[int] = []
    while len(output) < (s.max_tokens or capacity.context) and not (grammar and grammar.ended):
        ends = () if s.ignore_eos and grammar is None else {END}
        adjustment = naive.adjustment_of(request, output, ends)
        if grammar is not None:
            bias = dict(adjustment.bias)
            if s.ignore_eos:
                bias[END] = -1e20
            adjustment = replace(adjustment, bias=bias, allowed=grammar.following())
        own = naive.derive_seed(0, arrival) if s.seed is None else s.seed
        params = naive.row_params(request, own, len(prompt) + len(output))
        token = naive.likeliest(capacity, prompt, output, adjustment, params)[0][0]
        if token in ends:
            break
        output.append(token)
        if grammar is not None:
            grammar.accept(token)
    return output


samplings = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.8]),
    seed=st.integers(0, 99),
    max_tokens=st.integers(1, 14),
    ignore_eos=st.booleans(),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    logit_bias=st.sampled_from([(), ((3, 5.0),)]),
)
asked = st.tuples(
    st.lists(st.integers(1, 4), min_size=1, max_size=10),
    samplings,
    st.none() | st.integers(0, 30),
    st.integers(0, 3),
    st.booleans(),
)


@settings(max_examples=80, deadline=None)
@given(
    capacity=st.sampled_from(CAPACITIES),
    depth=st.integers(1, 3),
    each=st.lists(asked, min_size=1, max_size=6),
)
def test_the_tokens_are_a_naive_engines(capacity: Capacity, depth: int, each: list) -> None:
    """With steps in flight, preemption, cancellations and shared prefixes."""
    check(toy_driver(capacity, eos=[END], depth=depth), each)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.sampled_from([with_mtp(capacity) for capacity in CAPACITIES[:2]]),
    longest=st.integers(1, 4),
    each=st.lists(asked, min_size=1, max_size=6),
)
def test_nor_does_the_models_own_layer_change_them(
    capacity: Capacity, longest: int, each: list
) -> None:
    """Its drafts end where the grammar forbids a token, and forced tokens are none of its own."""
    speculator = Eager(MtpLayer(capacity).open, longest)
    check(toy_driver(capacity, eos=[END], speculator=speculator), each)


def check(driver: Driver, each: list) -> None:
    """Add requests, with steps and cancellations between them, and compare their tokens."""
    capacity = driver.engine.capacity
    wanted, cancelled = {}, []
    for arrival, (prompt, sampling, seed, wait, cancel) in enumerate(each):
        structure = None if seed is None else ANY
        request = Request(f"r{arrival}", prompt, sampling, structure=structure)
        grammar = None if seed is None else ToyGrammar(seed, VOCAB)
        add(driver, request, grammar)
        wanted[request.id] = expected(request, seed, arrival, capacity)
        for _ in range(wait):
            if driver.engine.has_work:
                driver.step()
        if cancel and driver.got[request.id].finished is None:
            driver.cancel(request.id)
            cancelled.append(request.id)
    for name, got in driver.run().items():
        if name in cancelled:
            assert got.tokens == wanted[name][: len(got.tokens)]
        else:
            assert got.tokens == wanted[name], name


def add(driver: Driver, request: Request, grammar: ToyGrammar | None) -> None:
    driver.engine.add(request, grammar)
    driver.got[request.id] = Got()
    driver.engine.check_integrity()


def test_what_is_forced_takes_no_step_of_its_own() -> None:
    """A jump is computed as a prompt is: fewer steps than tokens."""
    driver = toy_driver(small(context=64, max_step_tokens=16))
    add(driver, Request("a", [1], SamplingParams(temperature=0, max_tokens=20)), Only([5, 6, 7]))
    got = driver.run()["a"]
    assert got.tokens == [5, 6, 7] and got.finished and got.finished.reason == "stop"
    assert got.logprobs[1:] == [0.0, 0.0]
    assert driver.engine.stats().steps == 1


class Only(ToyGrammar):
    """Allows one answer."""

    def __init__(self, answer: list[int]) -> None:
        super().__init__(0, VOCAB)
        self._answer = answer

    def following(self) -> set[int]:
        return {[*self._answer, END][len(self.output)]}

    def forced(self) -> list[int]:
        return self._answer[len(self.output) :]


@pytest.mark.parametrize("depth", (1, 2, 3))
def test_a_grammar_that_fails_leaves_a_valid_prefix(depth: int) -> None:
    driver = toy_driver(eos=[END], depth=depth)
    sampling = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    grammar = Fails(3, VOCAB, fails_after=2)
    add(driver, Request("a", [1, 2], sampling), grammar)
    got = driver.run()["a"]
    assert len(got.tokens) == 2 and got.finished and got.finished.reason == "length"


class Fails(ToyGrammar):
    def following(self) -> set[int]:
        return {4, 5, 6}

    def forced(self) -> list[int]:
        return []


def test_an_engine_without_its_grammar_refuses() -> None:
    driver = toy_driver()
    with pytest.raises(UnsupportedError, match="'grammar'") as caught:
        driver.engine.add(Request("a", [1], structure=ANY))
    assert caught.value.param == "grammar" and not driver.engine.has_work
