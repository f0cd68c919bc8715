"""The model's own layer changes when tokens come, never which. The toy's layer is exact where it
gets the right hidden state: a draft that is wrong shows a wrong row, position or page."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Batch, Capacity, Engine, Request, Result, SamplingParams
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.lora import AdapterMatrix
from mlcc.engine.spec_decode.mtp import MtpLayer, MtpProposer
from mlcc.engine.spec_decode.speculator import OpenProposer, Speculator
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.speculation import Speculation
from tests.runtime.engine.helpers.drafting import Eager
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver
from tests.runtime.engine.spec_decode.test_speculation import numbers, some
from tests.runtime.engine.test_against_naive import (
    VOCAB,
    Arrival,
    arrivals,
    ends,
    run_and_compare,
)
from tests.runtime.lora.rooms import with_slots

fewer = settings(some, max_examples=60)
STATE, WINDOW = CacheGroup("state"), CacheGroup("window", 2, window=5)


def with_mtp(capacity: Capacity) -> Capacity:
    """The capacity of a model that has such a layer."""
    layout = replace(capacity.layout, token_columns=("hidden_row",))
    return replace(capacity, layout=layout)


@st.composite
def models(draw: st.DrawFn) -> Capacity:
    context = draw(st.integers(8, 48))
    groups = [CacheGroup("paged", draw(st.sampled_from([1, 2, 4])))]
    groups += draw(st.sampled_from([[], [STATE], [WINDOW], [CacheGroup("paged", 8)]]))
    most = [2 * context // group.page_size + 2 if group.has_pages else 6 for group in groups]
    capacity = Capacity.of(
        groups,
        [draw(st.integers(1, pages)) for pages in most],
        vocab_size=VOCAB,
        context=context,
        max_batch=draw(st.integers(1, 5)),
        max_step_tokens=draw(st.integers(2, 12)),
        max_rows=draw(st.integers(2, 6)),
    )
    return with_mtp(capacity)


def eager(capacity: Capacity, longest: int, seed: int) -> Speculator:
    """Drafts at random as many tokens as may be."""
    return Eager(MtpLayer(capacity).open, longest, draw=random.Random(seed))


@fewer
@given(models(), arrivals(), st.integers(1, 3), ends, st.integers(1, 5), numbers)
def test_agrees_with_naive(
    capacity: Capacity,
    coming: list[Arrival],
    depth: int,
    eos: set[int],
    longest: int,
    seed: int,
) -> None:
    run_and_compare(capacity, coming, depth, eos, speculator=eager(capacity, longest, seed))


LONG = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)


class Always(Speculator):
    """Drafts as many tokens as it may."""

    def worthwhile(self, acceptance: object, most: int, more: float = 0.0) -> int:
        return most

    allocate = worthwhile  # type: ignore[assignment]


def alone(layer: MtpLayer) -> OpenProposer:
    """Opens proposers of the layer that look nothing up."""

    def opened(*arguments: Any) -> MtpProposer:
        proposer = layer.open(*arguments)
        proposer.lookup = None
        return proposer

    return opened


def always(capacity: Capacity, longest: int) -> Driver:
    speculator = Always(alone(MtpLayer(capacity)), longest)
    return toy_driver(capacity, seed=3, speculator=speculator)


@pytest.mark.parametrize("groups", [[], [STATE], [WINDOW]], ids=["pages", "states", "windows"])
@pytest.mark.parametrize(("temperature", "depth"), [(0.0, 1), (0.8, 2)])
def test_every_draft_is_accepted(groups: list[CacheGroup], temperature: float, depth: int) -> None:
    """Prompts in chunks of several steps, beside each other; drafts of 3 tokens each. A step whose
    states the layer reads ends before the next, on a device that takes two."""
    pools = (64, 32)[: 1 + len(groups)]
    plain = small(CacheGroup("paged", 4), *groups, pools=pools, context=128, max_batch=8)
    capacity = with_mtp(replace(plain, max_rows=8))
    driver = always(capacity, 3)
    driver.depth = depth
    wish = replace(LONG, temperature=temperature, seed=5)
    for name, prompt in (("a", [*range(23)]), ("b", [9, 8, 7]), ("c", [*range(40, 20, -1)])):
        driver.add(Request(name, prompt, wish))
    for name, got in driver.run().items():
        assert got.finished is not None, name
        assert got.finished.drafted_tokens == got.finished.accepted_tokens > 20


def test_a_shared_prompt_shares_what_the_layer_computed() -> None:
    capacity = with_mtp(small(context=128))
    driver = always(capacity, 3)
    for name in ("a", "b"):
        driver.add(Request(name, [*range(17)], LONG))
        finished = driver.run()[name].finished
        assert finished is not None and finished.drafted_tokens == finished.accepted_tokens
    assert driver.engine.stats().cached_tokens == 16


def test_each_adapters_answers_are_drafted() -> None:
    """The states that the layer reads are those of the request's adapter."""
    driver = always(with_slots(with_mtp(small(context=128, max_batch=8)), 2), 3)
    answers = []
    for name in ("x", "y"):
        driver.load(name, [AdapterMatrix(0, 0, 0, 1, 1, False, "float32", name.encode() * 4)])
    for name in ("", "x", "y"):
        driver.add(Request(f"r{name}", [*range(17)], LONG, adapter=name))
    for got in driver.run().values():
        assert got.finished is not None
        assert got.finished.drafted_tokens == got.finished.accepted_tokens > 10
        answers.append(got.tokens)
    assert len({*map(tuple, answers)}) == 3


def test_the_better_of_layer_and_text_drafts() -> None:
    """After a repeated prompt the text knows the answer; the layer keeps up, and drafts again once
    the answer leaves the text."""
    capacity = with_mtp(small(context=256, pools=(128,)))
    speculator = Always(MtpLayer(capacity).open, 3)
    driver = toy_driver(capacity, seed=3, speculator=speculator)
    driver.add(Request("a", [*range(17)], LONG))
    tokens = driver.run()["a"].tokens
    speculator.acceptance("mtp").first = 0.5
    before = speculator.acceptance("mtp").weight
    driver.add(Request("b", [*range(17)], replace(LONG, max_tokens=60)))
    got = driver.run()["b"]
    assert got.tokens[:40] == tokens and got.finished is not None
    assert got.finished.drafted_tokens == got.finished.accepted_tokens > 40
    assert speculator.acceptance("tree").weight > 8
    assert speculator.acceptance("mtp").weight > before


@pytest.mark.parametrize("streams", [1, 3])
def test_the_layer_is_off_where_it_does_not_pay(streams: int) -> None:
    """A layer that is always wrong is hardly asked. Meanwhile two steps are in flight where a
    device takes two, as without it: all but those around its own."""
    capacity = with_mtp(small(context=512, pools=(512,), max_step_tokens=128))
    executor, layer = Wrong(capacity), MtpLayer(capacity)
    engine = Engine(capacity, speculator=Speculator(alone(layer)), draft=layer)
    driver = Driver(engine, executor, depth=2)
    driver.draft, driver.seconds = executor, lambda: 1.0
    for number in range(streams):
        driver.add(Request(str(number), [number, 2], replace(LONG, max_tokens=300)))
    driver.run()
    assert 0 < executor.of_layer < 20
    assert executor.beside >= 300 - 3 * executor.of_layer


class Paying(Always):
    """As `Always`, once drafts pay."""

    pays = False

    def worthwhile(self, acceptance: object, most: int, more: float = 0.0) -> int:
        return most if self.pays else 0

    allocate = worthwhile  # type: ignore[assignment]


def test_the_layer_follows_again_once_it_drafts() -> None:
    """Without drafts for long it reads no prompt. An answer during which they begin to pay is
    caught up on, and the next prompt is read chunk by chunk."""
    capacity = with_mtp(small(context=256, pools=(256,), max_batch=4, max_step_tokens=16))
    executor, layer = Counting(capacity), MtpLayer(capacity)
    speculator = Paying(alone(layer), 3)
    driver = Driver(Engine(capacity, speculator=speculator, draft=layer), executor)
    driver.draft, wish = executor, replace(LONG, max_tokens=60)

    def begin(name: str, tokens: int) -> list[int]:
        """Steps until a new answer has `tokens`; returns the sizes of the layer's steps."""
        before = len(executor.sizes)
        driver.add(Request(name, [ord(name), *range(29)], wish))
        while len(driver.got[name].tokens) < tokens:
            driver.step()
        return executor.sizes[before:]

    assert begin("1", 60) == [16]
    assert begin("2", 20) == []
    speculator.pays = True
    driver.run()
    assert executor.sizes[1:4] == [16, 16, 16]
    assert begin("3", 1) == [16]
    driver.run()
    for name in ("2", "3"):
        finished = driver.got[name].finished
        assert finished is not None and finished.drafted_tokens == finished.accepted_tokens > 20


def test_the_layer_is_left_alone_where_no_row_is_left_for_drafts() -> None:
    capacity = with_mtp(small(context=128, pools=(128,), max_batch=3))
    executor, layer = Wrong(capacity), MtpLayer(capacity)
    engine = Engine(capacity, speculator=Always(alone(layer), 3), draft=layer)
    driver = Driver(engine, executor, depth=2)
    driver.draft = executor
    for number in range(capacity.max_rows):
        driver.add(Request(str(number), [number, 2], LONG))
    driver.run()
    assert executor.of_layer == 0 and executor.beside >= 38


@pytest.mark.parametrize("depth", [1, 2])
def test_lookup_drafts_where_the_layer_does_not_pay(depth: int) -> None:
    """With a step in flight, too."""
    capacity = with_mtp(small(context=256, pools=(128,)))
    speculator = Speculator(MtpLayer(capacity).open, 8)
    driver = toy_driver(capacity, seed=3, speculator=speculator)
    driver.depth = depth
    driver.add(Request("a", [*range(17)], LONG))
    driver.run()
    speculator.acceptance("mtp").first = 0.0
    driver.add(Request("b", [*range(17)], LONG))
    got = driver.run()["b"].finished
    assert got is not None and got.accepted_tokens > 20


class Counting(ToyExecutor):
    """The toy; counts the layer's steps."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(capacity)
        self.sizes: list[int] = []
        """Tokens of each step of the layer."""

    @property
    def of_layer(self) -> int:
        """Steps of the layer."""
        return len(self.sizes)

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        self.sizes += [batch.num_tokens] if batch.mtp else []
        return super().submit(batch, adjustments)


class Wrong(Counting):
    """The toy with a layer that is wrong."""

    beside = in_flight = 0
    """Steps of the model that were submitted beside another, and steps in flight."""
    is_layer = False

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        self.is_layer = batch.mtp
        self.beside += self.in_flight > 0
        self.in_flight += 1
        return super().submit(batch, adjustments)

    def collect(self, ticket: int) -> Result:
        found = super().collect(ticket)
        self.in_flight -= 1
        if not self.is_layer:
            return found
        return found._replace(tokens=[(t + 1) % self.capacity.vocab_size for t in found.tokens])


def test_a_model_without_the_layer_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="compile it again with `mlcc compile --mtp`"):
        MtpLayer(small())
    for text, longest in (("mtp", 3), ("mtp:5", 5)):
        wish = Speculation.read(text)
        assert wish is not None and wish.longest == longest
    assert wish is not None
    with pytest.raises(UnsupportedError, match="compiled without"):
        wish.check(small())
    with pytest.raises(InvalidRequestError, match="lookup, mtp, draft or off"):
        Speculation.read("heads")
