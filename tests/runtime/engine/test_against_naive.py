"""Property: with any arrivals, cancellations, priorities, pools, budgets, windows and pipelining
depth, each request gets exactly the tokens of the naive engine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.admission import token_limit
from mlcc.engine.batch.executor import Executor
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import longest_sequence, pages_for
from mlcc.engine.spec_decode.speculator import Speculator
from mlcc.errors import InvalidRequestError
from tests.runtime.engine.helpers import naive
from tests.runtime.engine.helpers.drive import Driver, Got, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer

VOCAB = ByteTokenizer.vocab_size
TOKENIZER = ByteTokenizer()
Groups = st.SearchStrategy[list[CacheGroup]]
STOPS = ("a", "ab", "aab", "€", "😀a", "the", "b a", " ", "aabba")


@dataclass(frozen=True)
class Arrival:
    request: Request
    at: int
    """Committed steps before it is added."""
    cancel_after: int | None


def groups(page_sizes: st.SearchStrategy[int], windows: st.SearchStrategy[int]) -> Groups:
    """One to three cache groups of any kinds."""
    paged = st.builds(CacheGroup, st.just("paged"), page_sizes)
    window = st.builds(CacheGroup, st.just("window"), page_sizes, windows)
    state = st.just(CacheGroup("state"))
    return st.lists(paged | window | state, min_size=1, max_size=3)


@st.composite
def capacities(draw: st.DrawFn) -> Capacity:
    context = draw(st.integers(4, 48))
    chosen = draw(groups(st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 12)))
    most = [2 * context // group.page_size + 2 if group.has_pages else 6 for group in chosen]
    return Capacity.of(
        chosen,
        [draw(st.integers(1, pages)) for pages in most],
        vocab_size=VOCAB,
        context=context,
        max_batch=draw(st.integers(1, 5)),
        max_step_tokens=draw(st.integers(1, 12)),
        max_rows=draw(st.none() | st.integers(1, 5)),
    )


sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    top_k=st.integers(0, 3),
    top_p=st.sampled_from([0.3, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
    seed=st.none() | st.integers(-3, 2**70),
    max_tokens=st.none() | st.integers(1, 30),
    stop=st.lists(st.sampled_from(STOPS), max_size=2, unique=True).map(tuple),
    ignore_eos=st.booleans(),
)
numbers = st.sampled_from([0.0, 0.3, -1.5])
adjusted = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    max_tokens=st.integers(6, 30),
    ignore_eos=st.booleans(),
    stop_token_ids=st.lists(st.integers(0, VOCAB - 1), max_size=3).map(tuple),
    min_tokens=st.integers(0, 6),
    presence_penalty=numbers,
    frequency_penalty=numbers,
    repetition_penalty=st.sampled_from([1.0, 1.2, 0.7]),
    logit_bias=st.dictionaries(
        st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), max_size=4
    ).map(lambda bias: tuple(bias.items())),
)
few = st.integers(17, 19)
repeated = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    max_tokens=st.integers(6, 30),
    ignore_eos=st.booleans(),
    min_tokens=st.sampled_from([0, 4]),
    presence_penalty=numbers,
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    repeat_last_n=st.sampled_from([-1, 0, 1, 5, 2**31 - 1]),
    logit_bias=st.just(tuple((token, 80.0) for token in (17, 18, 19))),
    bad_words=st.lists(st.lists(few, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    dry_multiplier=st.sampled_from([0.0, 0.8, 2.0]),
    dry_base=st.sampled_from([1.0, 1.75]),
    dry_allowed_length=st.integers(0, 3),
    dry_penalty_last_n=st.sampled_from([-1, 0, 4]),
    dry_sequence_breakers=st.sampled_from([(), ("a",)]),
)
filtered = st.builds(
    SamplingParams,
    max_tokens=st.integers(6, 30),
    min_tokens=st.sampled_from([0, 3]),
    top_n_sigma=st.sampled_from([0.0, 1.5]),
    typical_p=st.sampled_from([1.0, 0.3]),
    epsilon_cutoff=st.sampled_from([0.0, 0.01]),
    eta_cutoff=st.sampled_from([0.0, 0.02]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    dynatemp_range=st.sampled_from([0.0, 0.4]),
    mirostat=st.sampled_from([0, 2]),
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    count = draw(st.integers(1, 7))
    return [
        Arrival(
            Request(
                f"r{i}",
                draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=24)),
                draw(sampling | adjusted | filtered | repeated),
                tenant=draw(st.sampled_from(["", "", "t"])),
                priority=draw(st.sampled_from([0, 0, -1, 2])),
                background=draw(st.booleans()),
            ),
            draw(st.integers(0, 20)),
            draw(st.none() | st.none() | st.integers(0, 20)),
        )
        for i in range(count)
    ]


fixed = settings(max_examples=120, deadline=None, derandomize=True, database=None)
ends = st.sets(st.integers(0, VOCAB - 1), max_size=2)


@fixed
@given(capacities(), arrivals(), st.integers(1, 3), ends)
def test_agrees_with_naive(
    capacity: Capacity, coming: list[Arrival], depth: int, eos: set[int]
) -> None:
    run_and_compare(capacity, coming, depth, eos)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Capacity, list[Arrival]]:
    """Long answers, all at once, in a pool that holds about one and a half of them."""
    sampled = draw(st.integers(8, 30))
    prompts = draw(
        st.lists(
            st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), min_size=3, max_size=6
        )
    )
    longest = max(map(len, prompts)) + sampled
    chosen = draw(groups(st.integers(1, 4), st.integers(2, 20)))
    spare = draw(st.integers(0, 12))
    capacity = Capacity.of(
        chosen,
        [pages_for(longest, group) + spare for group in chosen],
        vocab_size=VOCAB,
        context=longest + 1,
        max_batch=draw(st.integers(2, 6)),
        max_step_tokens=draw(st.integers(2, 20)),
    )
    sampling = SamplingParams(max_tokens=sampled, ignore_eos=draw(st.booleans()))
    cancel = st.none() | st.none() | st.none() | st.integers(1, 30)
    ranks = draw(st.lists(st.integers(-2, 2), min_size=len(prompts), max_size=len(prompts)))
    requests = [
        Request(f"r{i}", prompt, sampling, priority=rank)
        for i, (prompt, rank) in enumerate(zip(prompts, ranks, strict=True))
    ]
    return capacity, [Arrival(r, draw(st.integers(0, 6)), draw(cancel)) for r in requests]


@fixed
@given(crowds(), st.integers(1, 3), ends)
def test_agrees_with_naive_when_pages_are_short(
    crowd: tuple[Capacity, list[Arrival]], depth: int, eos: set[int]
) -> None:
    run_and_compare(*crowd, depth, eos)


def run_and_compare(
    capacity: Capacity,
    coming: list[Arrival],
    depth: int,
    eos: set[int],
    *,
    prefix_cache: bool = True,
    speculator: Speculator | None = None,
    draft: Executor | None = None,
) -> Driver:
    driver = toy_driver(
        capacity, eos, TOKENIZER, depth, seed=7, prefix_cache=prefix_cache,
        speculator=speculator, draft=draft,
    )  # fmt: skip
    added = play(driver, sorted(coming, key=lambda a: a.at))
    driver.run()
    for number, arrival in enumerate(added):
        check_answer(driver.got[arrival.request.id], arrival.request, number, capacity, eos)
    return driver


def play(driver: Driver, todo: list[Arrival]) -> list[Arrival]:
    """Let requests come and go at their times; returns those that were let in, in order."""
    added: list[Arrival] = []
    step = 0
    while todo or driver.engine.has_work:
        while todo and todo[0].at <= step:
            arrival = todo.pop(0)
            with suppress(InvalidRequestError):
                driver.add(arrival.request)
                added.append(arrival)
        for arrival in added:
            if arrival.cancel_after is not None and arrival.at + arrival.cancel_after == step:
                driver.cancel(arrival.request.id)
        if driver.engine.has_work:
            driver.step()
        step += 1
        assert step < 5_000
    return added


def check_answer(
    got: Got, request: Request, number: int, capacity: Capacity, eos: set[int]
) -> None:
    longest = longest_sequence(capacity.pools, capacity.groups, capacity.context)
    limit = token_limit(request, capacity.context, longest)
    want = naive.answer(request, number, capacity, eos, TOKENIZER, base=7, limit=limit)
    assert got.finished is not None
    assert got.finished.prompt_tokens == len(request.prompt)
    if got.finished.reason in ("cancelled", "error"):
        count = len(got.tokens)
        assert got.tokens == want.tokens[:count]
        assert got.finished.completion_tokens == count
        return
    assert got.tokens == want.tokens
    assert got.logprobs == want.logprobs
    assert got.text == want.text
    assert got.finished.reason == want.reason
    assert got.finished.completion_tokens == want.completion_tokens
    assert got.finished.matched == want.matched
