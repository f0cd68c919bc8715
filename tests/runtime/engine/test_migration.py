"""Requests that migrate between engines at any moment, there and back: each gets exactly the tokens
of the naive engine. Invalid exports are refused by one error each, without an effect."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.migration import Identity
from mlcc.engine.sampling.grammar import Grammar, Structure
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.kv_transfer import export_request, import_request
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer
from tests.runtime.engine.helpers.toy_grammar import ToyGrammar
from tests.runtime.engine.test_against_naive import TOKENIZER, capacities, check_answer, sampling

IDENTITY = Identity("layout", "model", "tokenizer")
EOS = {1}
KINDS = [
    [CacheGroup("paged", 4)],
    [CacheGroup("paged", 4), CacheGroup("window", 4, 6)],
    [CacheGroup("paged", 8), CacheGroup("state")],
    [CacheGroup("window", 4, 6), CacheGroup("state")],
    [CacheGroup("state")],
]


def rest(driver: Driver) -> None:
    """Commit all steps in flight."""
    while driver.tickets:
        result = driver.executor.collect(driver.tickets.popleft())
        driver.take(driver.engine.commit(result))
    driver.engine.check_integrity()


def exported(driver: Driver, name: str) -> bytes:
    rest(driver)
    return export_request(driver.engine.migration, driver.executor, IDENTITY, name)


def imported(driver: Driver, data: bytes, identity: Identity = IDENTITY) -> bool:
    rest(driver)
    found = import_request(driver.engine.migration, driver.executor, identity, data)
    driver.engine.check_integrity()
    return found.computed


def move(name: str, source: Driver, to: Driver) -> bool | None:
    """Whether its pages found room; None if it ended before, or `to` could never answer it."""
    rest(source)
    if source.got[name].finished:
        return None
    data = exported(source, name)
    try:
        computed = imported(to, data)
    except InvalidRequestError as error:
        assert error.code == "context_length_exceeded"
        return None
    to.got[name] = source.got.pop(name)
    source.engine.cancel(name)  # what this tells is `to`'s to tell
    source.engine.check_integrity()
    return computed


@settings(max_examples=120, deadline=None)
@given(
    capacity=capacities(),
    pools=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    prompts=st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=20), min_size=1, max_size=5),
    all_params=st.lists(sampling, min_size=5, max_size=5),
    depths=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 1 << 30),
)
def test_any_request_at_any_moment(
    capacity: Capacity,
    pools: Sequence[int],
    prompts: list[list[int]],
    all_params: list[SamplingParams],
    depths: tuple[int, int],
    seed: int,
) -> None:
    draw = random.Random(seed)
    other = replace(capacity, pools=tuple(pools[: len(capacity.pools)]))
    drivers = [
        toy_driver(capacity, EOS, TOKENIZER, depths[0], 7),
        toy_driver(other, EOS, TOKENIZER, depths[1], 8, prefix_cache=draw.random() < 0.5),
    ]
    asked: dict[str, Request] = {}
    for prompt, params in zip(prompts, all_params, strict=False):
        request = Request(f"r{len(asked)}", prompt, params)
        try:
            drivers[0].add(request)
        except InvalidRequestError:
            continue
        asked[request.id] = request
    while any(driver.engine.has_work for driver in drivers):
        for driver in drivers:
            if driver.engine.has_work:
                driver.step()
        if asked and draw.random() < 0.4:
            name = draw.choice([*asked])
            source, to = drivers if name in drivers[0].got else drivers[::-1]
            move(name, source, to)
    for driver in drivers:
        rest(driver)
        assert driver.engine.stats().pages_free == sum(driver.engine.capacity.pools)
    for number, request in enumerate(asked.values()):
        (got,) = (driver.got[request.id] for driver in drivers if request.id in driver.got)
        check_answer(got, request, number, capacity, EOS)


@pytest.mark.parametrize("groups", KINDS)
def test_pages_go_along_and_are_not_computed_again(groups: list[CacheGroup]) -> None:
    capacity = small(*groups, pools=(20,) * len(groups), context=60)
    source, to = toy_driver(capacity, seed=7), toy_driver(capacity, seed=8)
    request = Request("a", range(2, 40), SamplingParams(max_tokens=15, ignore_eos=True))
    source.add(request)
    for _ in range(8):
        source.step()
    output_tokens = len(source.got["a"].tokens)
    assert output_tokens
    assert move("a", source, to)
    to.run()
    assert to.engine.stats().computed_tokens == 15 - output_tokens
    alone = toy_driver(capacity, seed=7)
    alone.add(request)
    assert alone.run()["a"].tokens == to.got["a"].tokens


def test_without_room_for_its_pages_it_waits_and_is_computed_again() -> None:
    capacity = small(pools=(12,))
    source, to = toy_driver(capacity), toy_driver(capacity)
    to.add(Request("b", range(2, 30), SamplingParams(max_tokens=15, ignore_eos=True)))
    source.add(Request("a", range(2, 26), SamplingParams(max_tokens=9, ignore_eos=True)))
    for _ in range(4):
        source.step()
        to.step()
    assert move("a", source, to) is False
    to.run()
    assert len(to.got["a"].tokens) == 9


def test_what_a_request_carries() -> None:
    """Log-probabilities that wait for their text, penalties, mirostat, a grammar's state."""

    class Opening:
        def check(self, structure: Structure) -> None:
            assert structure.text == "3"

        def open(self, structure: Structure) -> Grammar:
            return ToyGrammar(3, ByteTokenizer.vocab_size)

    capacity = Capacity.of(
        KINDS[0], [40], vocab_size=ByteTokenizer.vocab_size, context=64, max_batch=4,
        max_step_tokens=16,
    )  # fmt: skip
    with_text = {"logprobs": 2, "stop": ("zzzzzz", "abcde")}
    all_params = [
        (SamplingParams(seed=3, max_tokens=20, repetition_penalty=1.3, **with_text), None),
        (SamplingParams(seed=4, max_tokens=20, mirostat=2, temperature=0.7, **with_text), None),
        (SamplingParams(seed=5, max_tokens=20, dry_multiplier=0.8, **with_text), None),
        (SamplingParams(seed=6, max_tokens=20, logprobs=1), Structure("regex", "3", "x")),
    ]
    for params, structure in all_params:
        request = Request("a", [5, 6, 7, 8, 9], params, structure=structure, priority=2)
        grammar = Opening().open(structure) if structure else None
        alone = toy_driver(capacity, EOS, TOKENIZER)
        alone.engine.add(request, grammar and Opening().open(Structure("regex", "3")))
        alone.got["a"] = type(alone.got).fromkeys("a") and _empty()
        want = alone.run()["a"]
        for steps in range(1, 12):
            source, to = (toy_driver(capacity, EOS, TOKENIZER) for _ in range(2))
            source.engine.add(request, grammar and Opening().open(Structure("regex", "3")))
            source.got["a"] = _empty()
            for _ in range(steps):
                if source.engine.has_work:
                    source.step()
            if source.got["a"].finished:
                break
            data = exported(source, "a")
            import_request(to.engine.migration, to.executor, IDENTITY, data, Opening())
            to.got["a"] = source.got["a"]
            to.run()
            assert to.got["a"] == want


def _empty():  # type: ignore[no-untyped-def]
    from tests.runtime.engine.helpers.drive import Got

    return Got()


def some() -> tuple[Driver, bytes]:
    """An engine that has work, and an export of another's request."""
    source, to = toy_driver(small(*KINDS[1], pools=(20, 20))), None
    source.add(Request("a", range(2, 20), SamplingParams(max_tokens=9, ignore_eos=True)))
    to = toy_driver(small(*KINDS[1], pools=(20, 20)))
    to.add(Request("b", range(3, 20), SamplingParams(max_tokens=9, ignore_eos=True)))
    for driver in (source, to):
        for _ in range(3):
            driver.step()
    return to, exported(source, "a")


def refused(to: Driver, data: bytes, kind: type[MlccError], words: str, **given: Identity) -> None:
    """One line, nothing else is disturbed, and a sound export is taken afterwards."""
    before = to.engine.stats()
    with pytest.raises(kind, match=words):
        imported(to, data, **given)
    assert to.engine.stats() == before


def sealed(data: bytes, edit: Callable[[dict], None], pages: bytes | None = None) -> bytes:  # type: ignore[type-arg]
    """With another header, and a checksum that fits."""
    length = int.from_bytes(data[16:24], "little")
    header = json.loads(data[56 : 56 + length])
    edit(header)
    text = json.dumps(header).encode()
    body = text + (data[56 + length :] if pages is None else pages)
    front = data[:8] + (56 + len(body)).to_bytes(8, "little") + len(text).to_bytes(8, "little")
    return front + hashlib.sha256(body).digest() + body


def test_what_is_no_export_of_ours_is_refused_in_a_line() -> None:
    to, data = some()
    bad = InvalidRequestError
    refused(to, data[:30], bad, "ends after 30 bytes")
    refused(to, data[:-1], bad, "bytes and says")
    refused(to, data + b"x", bad, "bytes and says")
    refused(to, b"GGUF" + data[4:], bad, "begins like nothing")
    refused(to, data[:7] + b"1" + data[8:], UnsupportedError, "version")
    for at in (24, 60, len(data) - 1):
        refused(to, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], bad, "checksum")
    for name in ("layout", "model", "tokenizer"):
        other = replace(IDENTITY, **{name: "other"})
        refused(to, data, bad, "pages are", identity=other)

    def set_in(*path: str, value: object) -> bytes:
        def edit(header: dict) -> None:  # type: ignore[type-arg]
            *outer, last = path
            for name in outer:
                header = header[name]
            header[last] = value

        return sealed(data, edit)

    cases: list[tuple[bytes, str]] = [
        (set_in("exported", "computed", value=10_000), "bytes of pages|do not fit"),
        (set_in("exported", "computed", value=-1), "bytes of pages|do not fit"),
        (set_in("exported", "output", value=[64]), "do not fit"),
        (set_in("exported", "output", value=[1.5]), "header is none"),
        (set_in("exported", "first_pages", value=[0]), "laid out otherwise"),
        (set_in("exported", "surprise", value=1e39), "do not fit"),
        (set_in("exported", "request", "sampling", "temperature", value=1e39), "temperature is 1e"),
        (
            set_in("exported", "held", value=[{"token": 1, "logprob": 1e39, "top": []}]),
            "do not fit",
        ),
        (set_in("exported", "first_pages", value=[0, 99]), "bytes of pages|do not fit"),
        (set_in("exported", "first_pages", value=[1, 0]), "bytes of pages|do not fit"),
        (set_in("exported", "limit", value=1), "do not fit"),
        (set_in("exported", "stream", value=-1), "do not fit"),
        (set_in("exported", "surprise", value="x"), "header is none"),
        (set_in("exported", "request", "prompt", value=[99]), "vocabulary"),
        (set_in("exported", "request", "sampling", "top_p", value=7), "top_p"),
        (set_in("exported", "request", "nothing", value=7), "header is none"),
        (set_in("exported", "held", value=[{"token": 1, "logprob": 0.0, "top": []}]), "damaged"),
        (set_in("page_bytes", value=[1, 1]), "bytes of pages"),
        (set_in("page_bytes", value=[-64, 64]), "bytes of pages"),
        (sealed(data, lambda header: None, b""), "bytes of pages"),
        (sealed(data, lambda header: header.pop("identity")), "header is none"),
        (set_in("exported", "request", "id", value="b"), "already in use"),
    ]
    for given_, words in cases:
        refused(to, given_, InvalidRequestError, words)
    assert imported(to, data)
    to.got["a"] = _empty()
    to.run()


def places(value: object, at: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """The paths of all values in a value of JSON, but its own."""
    if not isinstance(value, dict | list):
        return
    for name, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*at, name)
        yield from places(each, (*at, name))


NUMBERS = st.integers(-3, 70) | st.sampled_from(
    [1 << 31, 1 << 64, 10**400, -(1 << 63), 0.5, 1e39, 1e-46]
)
OTHERS = st.none() | st.booleans() | st.sampled_from(["", "x", "\ud800", {}, {"a": 1}, [[[]]]])
VALUES = (NUMBERS | OTHERS | st.lists(NUMBERS | OTHERS, max_size=30)).map(deepcopy)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_are_refused_or_taken(data: st.DataObject) -> None:
    """With any header the engine stays consistent, and running requests get correct answers."""
    to, sound = some()
    to.got = defaultdict(_empty, to.got)  # the header may name another request

    def edit(header: dict) -> None:  # type: ignore[type-arg]
        for _ in range(data.draw(st.integers(1, 3))):
            *outer, last = data.draw(st.sampled_from([*places(header)]))
            found: Any = header
            for name in outer:
                found = found[name]
            found[last] = data.draw(VALUES)

    with suppress(InvalidRequestError, UnsupportedError):
        imported(to, sealed(sound, edit))
    to.engine.check_integrity()
    assert len(to.run()["b"].tokens) == 9


def test_a_device_that_fails_to_take_pages_leaves_nothing_behind() -> None:
    to, data = some()

    def fail(group: int, ids: Sequence[int], content: bytes) -> None:
        raise RuntimeError("lost")

    to.executor.write_pages, kept = fail, to.executor.write_pages  # type: ignore[method-assign]
    before = to.engine.stats()
    with pytest.raises(RuntimeError, match="lost"):
        imported(to, data)
    assert to.engine.stats() == before
    to.executor.write_pages = kept  # type: ignore[method-assign]
    assert imported(to, data)


def test_requests_move_between_steps_only() -> None:
    driver = toy_driver(depth=2)
    driver.add(Request("a", [2, 3], SamplingParams(max_tokens=9, ignore_eos=True)))
    driver.step()
    assert driver.engine.plan() is not None
    with pytest.raises(RuntimeError, match="between steps"):
        driver.engine.migration.export("a")
    with pytest.raises(InvalidRequestError, match="no live request 'b'"):
        toy_driver().engine.migration.export("b")
