"""A request that makes a step fail ends alone: failures are injected at each place of a step, and
the answers of its neighbours are those of a run without it."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import FrameType
from typing import Any

import pytest

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Capacity, Request, SamplingParams, TextDelta
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, BatchWriter, Result
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.output_processor import OutputProcessor
from mlcc.engine.sampling.filter_state import FilterState
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.scheduler import packing
from mlcc.engine.scheduler.budgets import StepBudget
from mlcc.engine.scheduler.scheduler import DraftPlanner, PrefixReuse, Scheduler
from mlcc.engine.spec_decode.speculator import DraftState, Speculator
from mlcc.engine.text.detokenizer import OutputText
from mlcc.errors import DeviceError, DeviceLostError, MlccError, OutOfMemoryError
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc.model.speculation import Speculation
from tests.helpers.toy.toy_model import VOCAB, toy_text
from tests.runtime.engine.helpers.toy_grammar import ToyGrammar

GROUPS = {
    "paged": ([CacheGroup("paged", 16)], [64]),
    "short": ([CacheGroup("paged", 4)], [26]),  # pages run out: sequences are preempted
    "window": ([CacheGroup("paged", 4), CacheGroup("window", 4, 6)], [64, 40]),
    "state": ([CacheGroup("paged", 4), CacheGroup("state")], [64, 24]),
}
KINDS = [("paged", False), ("short", True), ("window", True), ("state", False)]
MARK = 77
"""The bad request's top_k, which names it in the tables."""
BAD = Request(
    "bad",
    [9, 9, 9, 8, 9, 9, 9, 8, 9],
    SamplingParams(
        top_k=MARK, max_tokens=24, ignore_eos=True, seed=3, frequency_penalty=0.5, stop=("\x00",),
        mirostat=2, logprobs=2,
    ),
)  # fmt: skip
PLAIN = replace(BAD, sampling=SamplingParams(top_k=MARK, max_tokens=24, ignore_eos=True, seed=3))
"""The same without what excludes drafts and the fast path."""


def neighbours() -> list[Request]:
    shared = [5, 6, 7, 8] * 5
    settings = [
        SamplingParams(max_tokens=30, seed=1, ignore_eos=True),
        SamplingParams(temperature=0.0, max_tokens=25, ignore_eos=True),
        SamplingParams(max_tokens=20, seed=2, frequency_penalty=0.5, logprobs=3, ignore_eos=True),
        SamplingParams(max_tokens=12, seed=4, stop=("ab",), prompt_logprobs=True, logprobs=1),
        SamplingParams(max_tokens=16, seed=5, mirostat=2, ignore_eos=True),
    ]
    found = [Request(f"n{i}", [*shared, i], params) for i, params in enumerate(settings)]
    found.append(Request("g0", [1, 2, 3], SamplingParams(max_tokens=9, seed=6)))
    found += [
        Request(f"s{i}", [4] * 9, SamplingParams(max_tokens=9, seed=i), sampling_group="s")
        for i in range(2)
    ]
    return found


@dataclass
class Got:
    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    prompt: tuple[Any, ...] = ()
    reason: str = ""
    error: MlccError | None = None


class Run:
    """One engine under a real driver. `act` is called before each step with its number."""

    def __init__(
        self, pools: str = "paged", speculate: bool = False, executor: type = ToyExecutor
    ) -> None:
        groups, sizes = GROUPS[pools]
        capacity = Capacity.of(
            groups, sizes, vocab_size=VOCAB, context=64, max_batch=4, max_step_tokens=24
        )
        spec = Speculation("lookup", 4) if speculate else None
        self.driver = Driver(Model(toy_text(), executor(capacity), speculation=spec))
        self.got: dict[str, Got] = {}

    def add(self, request: Request, grammar: ToyGrammar | None = None) -> None:
        if request.id.startswith("g"):
            grammar = ToyGrammar(4, VOCAB)
        self.driver.engine.add(request, grammar)
        self.driver.engine._sequences[request.id].output.owner = request.id  # type: ignore[attr-defined]
        self.got[request.id] = Got()

    def run(self, *more: Request, act: Callable[[int], None] = lambda step: None) -> dict[str, Got]:
        """Answer the neighbours, and `more` among them."""
        first, *late = [*neighbours()[:2], *more, *neighbours()[2:]], *()
        for request in first[:5]:
            self.add(request)
        waiting = first[5:]
        for step in range(2000):
            act(step)
            if waiting and step % 3 == 2:
                self.add(waiting.pop(0))
            if not self.driver.has_work and not waiting:
                break
            self.take(self.driver.step())
            self.driver.engine.check_integrity()
        else:
            raise AssertionError("no end in sight")
        assert self.driver.engine.stats().pages_free == sum(self.driver.engine.capacity.pools)
        assert not late
        return self.got

    def take(self, events: Sequence[Any]) -> None:
        for event in events:
            got = self.got[event.request_id]
            assert not got.reason, "an event after the end"
            if isinstance(event, TextDelta):
                got.text += event.text
                got.tokens += event.token_ids
                got.logprobs += event.logprobs
                got.prompt += tuple(event.prompt_logprobs)
            else:
                got.reason, got.error = event.reason, event.error


@cache
def undisturbed(pools: str, speculate: bool) -> dict[str, Got]:
    found = Run(pools, speculate).run()
    assert {got.reason for got in found.values()} <= {"length", "stop"}
    return found


class Injected(Exception):
    """The injected failure."""


def fails(owner: Any, name: str, blamed: Callable[..., bool]) -> Callable[[Any], None]:
    """A patch of a method or function: it raises where `blamed` is true of its arguments."""

    def install(patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def failing(*args: Any, **kwargs: Any) -> Any:
            if blamed(*args, **kwargs):
                raise Injected(name)
            return original(*args, **kwargs)

        patch.setattr(owner, name, failing)

    return install


def bad_sequence(*args: Any, **kwargs: Any) -> bool:
    """Whether the bad request is an argument, with two tokens of its answer."""
    return any(
        getattr(getattr(arg, "request", None), "id", "") == "bad"
        and len(arg.tokens) > arg.prompt_tokens + 1
        for arg in args
    )


def bad_at_once(*args: Any, **kwargs: Any) -> bool:
    return any(getattr(getattr(arg, "request", None), "id", "") == "bad" for arg in args)


def bad_prompt(tokens: Sequence[int]) -> bool:
    return len(tokens) > 10 and [*tokens[:9]] == [*BAD.prompt]


PLACES = {
    "scheduler: chunk": fails(Scheduler, "_chunk", bad_sequence),
    "scheduler: pages": fails(Scheduler, "_allocate_or_preempt", bad_sequence),
    "scheduler: budget": fails(StepBudget, "take_adjustments", bad_sequence),
    "scheduler: waiting": fails(PrefixReuse, "find", bad_at_once),
    "scheduler: release": fails(Scheduler, "_release", bad_sequence),
    "scheduler: remove": fails(Scheduler, "remove", bad_sequence),
    "prefix cache": fails(PrefixReuse, "store", bad_sequence),
    "prefix cache: planned": fails(
        CacheManager, "insert", lambda self, scope, tokens, *_: bad_prompt(tokens)
    ),
    "drafts: wait": fails(DraftPlanner, "must_wait", bad_sequence),
    "drafts: propose": fails(DraftState, "propose", lambda self, _: bad_prompt(self.tokens)),
    "tables: tokens": fails(packing, "_tokens", bad_sequence),
    "tables: row": fails(
        BatchWriter, "row", lambda self, token, sampling=None, *_, **__: top_k(sampling) == MARK
    ),
    "tables: filters": fails(
        FilterState, "filters", lambda self, _: self._sampling.top_k == MARK
    ),
    "adjustments": fails(
        LogitsProcessor, "write", lambda self, *_: bad_prompt(self._tokens)
    ),
    "sampling: append": fails(OutputProcessor, "_append", bad_sequence),
    "sampling: history": fails(
        LogitsProcessor, "push", lambda self, _: bad_prompt(self._tokens)
    ),
    "output: filters": fails(FilterState, "push", lambda self, _: self._sampling.top_k == MARK),
    "output: end": fails(OutputProcessor, "_end", bad_sequence),
    "detokenizer": fails(OutputText, "push", lambda self, _: self.owner == "bad"),
    "detokenizer: end": fails(OutputText, "flush", lambda self, _: self.owner == "bad"),
}  # fmt: skip


def top_k(sampling: Any) -> int:
    return getattr(sampling, "top_k", 0)


@pytest.mark.parametrize(("pools", "speculate"), KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_the_request_that_makes_a_step_fail_ends_alone(
    place: str, pools: str, speculate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = undisturbed(pools, speculate)
    PLACES[place](monkeypatch)
    got = Run(pools, speculate).run(PLAIN if place.startswith("drafts") else BAD)
    bad = got.pop("bad")
    assert got == want
    if bad.reason != "error":  # this run did not come to the place
        assert place in PERHAPS
        return
    assert bad.error is not None
    assert isinstance(bad.error.__cause__, Injected), "the client gets the public error"
    assert "Injected" not in bad.error.message


PERHAPS = {"scheduler: release", "scheduler: remove", "prefix cache", "drafts: wait",
           "drafts: propose", "prefix cache: planned"}  # fmt: skip
"""Places where a failure costs the request nothing, or that some runs do not reach."""


def marked(batch: Batch) -> bool:
    return MARK in batch.column(batch.layout.rows, "top_k")


class FailsAtSubmit(ToyExecutor):
    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        if marked(batch):
            raise OutOfMemoryError("the GPU's memory is full")
        return super().submit(batch, adjustments)


class FailsAtCollect(ToyExecutor):
    def _run(self, batch: Batch, *args: Any) -> Result:
        result = super()._run(batch, *args)
        if marked(batch):
            raise DeviceError("the device failed")
        return result


class SamplesNonsense(ToyExecutor):
    def _run(self, batch: Batch, *args: Any) -> Result:
        result = super()._run(batch, *args)
        return result._replace(tokens=[1 << 30 for _ in result.tokens]) if marked(batch) else result


@pytest.mark.parametrize(("pools", "speculate"), KINDS)
@pytest.mark.parametrize("executor", [FailsAtSubmit, FailsAtCollect, SamplesNonsense])
def test_a_device_that_fails_for_one_request_serves_the_others(
    executor: type, pools: str, speculate: bool
) -> None:
    want = undisturbed(pools, speculate)
    got = Run(pools, speculate, executor).run(BAD)
    assert isinstance(got.pop("bad").error, (DeviceError, OutOfMemoryError))
    assert got == want


class Grammar(ToyGrammar):
    """Fails at `place` after three tokens."""

    def __init__(self, place: str) -> None:
        super().__init__(4, VOCAB)
        self.place = place

    def _fail(self, place: str) -> None:
        if place == self.place and len(self.output) >= 2:
            raise Injected(place)

    def allowed(self) -> array[int]:
        self._fail("allowed")
        return super().allowed()

    def accept(self, token: int) -> None:
        self._fail("accept")
        super().accept(token)

    def lookahead(self, tokens: Sequence[int]) -> list[array[int]]:
        self._fail("lookahead")
        return super().lookahead(tokens)

    def forced(self) -> Sequence[int]:
        self._fail("forced")
        return super().forced()


@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("place", ["allowed", "accept", "lookahead", "forced"])
def test_a_grammar_that_fails_ends_its_request(place: str, speculate: bool) -> None:
    want = undisturbed("paged", speculate)
    run = Run("paged", speculate)

    def act(step: int) -> None:
        if step == 1:
            run.add(PLAIN, Grammar(place))

    got = run.run(act=act)
    bad = got.pop("bad")
    assert got == want
    assert bad.reason == "error" or place == "lookahead"


@pytest.mark.parametrize("speculate", [False, True])
def test_several_bad_requests_end_and_no_other(speculate: bool) -> None:
    want = undisturbed("paged", speculate)
    bad = [replace(BAD, id=f"bad{i}") for i in range(3)]
    got = Run("paged", speculate, FailsAtCollect).run(*bad)
    assert all(got.pop(request.id).reason == "error" for request in bad)
    assert got == want


class Fault:
    """Raises once, at call number `at` of a function of the engine."""

    def __init__(self, at: int) -> None:
        self.at, self.calls, self.place = at, 0, ""

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        skip = self.place or code.co_name == "<genexpr>"  # may be closed by the collector
        if event != "call" or "/mlcc/engine/" not in code.co_filename or skip:
            return
        self.calls += 1
        if self.calls == self.at:
            self.place = f"{code.co_filename}:{code.co_name}"
            raise Injected(self.place)


def faulty(run: Run, fault: Fault) -> dict[str, Got]:
    step = run.driver.step

    def traced() -> Any:
        before = sys.gettrace()
        sys.settrace(fault)  # type: ignore[arg-type]
        try:
            return step()
        finally:
            sys.settrace(before)

    run.driver.step = traced  # type: ignore[method-assign]
    return run.run(BAD)


@pytest.mark.parametrize(("pools", "speculate"), [("short", True), ("state", False)])
def test_one_failure_at_any_call_costs_one_answer_at_most(pools: str, speculate: bool) -> None:
    want = dict(undisturbed(pools, speculate))
    want["bad"] = Run(pools, speculate).run(BAD)["bad"]
    whole = Fault(0)
    faulty(Run(pools, speculate), whole)
    places, lost = set(), 0
    for at in range(1, whole.calls, max(1, whole.calls // 10)):
        fault = Fault(at)
        got = faulty(Run(pools, speculate), fault)
        places.add(fault.place)
        different = [name for name in want if got[name] != want[name]]
        assert len(different) <= 1, (fault.place, different)
        assert all(got[name].reason == "error" for name in different), fault.place
        lost += len(different)
    assert len(places) > 4
    assert lost < 10


def test_a_lost_device_ends_everything() -> None:
    class Lost(ToyExecutor):
        def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
            raise DeviceLostError("gone")

    run = Run(executor=Lost)
    with pytest.raises(DeviceLostError):
        run.run()
    assert not run.driver.has_work


def test_a_speculator_that_does_not_open_refuses_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: Speculator, *args: object) -> None:
        raise Injected

    run = Run(speculate=True)
    monkeypatch.setattr(Speculator, "open", broken)
    with pytest.raises(Injected):
        run.driver.engine.add(replace(PLAIN, sampling_group="s"))
    monkeypatch.undo()
    assert not run.driver.has_work
    run.add(replace(PLAIN, sampling_group="s"))
    while run.driver.has_work:
        run.take(run.driver.step())
    assert len(run.got["bad"].tokens) == 24
