"""Refused requests with their messages, and the ends of requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Capacity, Engine, Finished, Request, Result, SamplingParams, TextDelta
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import DeviceError, InvalidRequestError
from tests.runtime.engine.helpers.drive import SMALL, small, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "1"),
        ("temperature", None),
        ("temperature", 1e39),
        ("temperature", 10**400),
        ("presence_penalty", 1e39),
        ("frequency_penalty", -1e39),
        ("repetition_penalty", 1e39),
        ("repetition_penalty", 1e-46),  # 0 in float32
        ("repetition_penalty", 0),
        ("logit_bias", ((3, 1e39),)),
        ("logit_bias", ((3, 10**400),)),
        ("mirostat_tau", 10**400),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_k", 2**31),
        ("top_p", 0.0),
        ("top_p", 1e-46),  # 0 in float32
        ("top_p", 1.01),
        ("min_p", -0.5),
        ("min_p", 2),
        ("seed", 1.0),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("stop", "text"),
        ("stop", ("",)),
        ("stop", ["list"]),
    ],
)
def test_bad_sampling_is_named(param: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=param) as caught:
        SamplingParams(**{param: value})  # type: ignore[arg-type]
    assert caught.value.param == param


def test_times_in_the_queue_and_of_computation() -> None:
    """The clock goes on by a second a step. Of three answers of two steps each, two run at once."""
    driver = toy_driver(small(max_batch=2))
    now = 0
    driver.engine.times.clock = lambda: float(now)
    for name in "abc":
        driver.add(Request(name, [1], SamplingParams(max_tokens=2, ignore_eos=True)))
    driver.engine.add(Request("d", [1], SamplingParams(max_tokens=2)))
    driver.engine.cancel("d")
    while driver.engine.has_work:
        now += 1
        driver.step()
    stats = driver.engine.stats()
    # a and b start at 1 and end at 2; c starts at 3 and ends at 4
    assert (stats.answers, stats.queue_s, stats.compute_s) == (3, 1 + 1 + 3, 1 + 1 + 1)


def refuse(capacity: Capacity, request: Request) -> InvalidRequestError:
    engine = Engine(capacity)
    with pytest.raises(InvalidRequestError) as caught:
        engine.add(request)
    assert not engine.has_work
    return caught.value


def test_empty_prompt_and_id() -> None:
    with pytest.raises(InvalidRequestError, match="no tokens"):
        Request("a", [])
    with pytest.raises(InvalidRequestError, match="id"):
        Request("", [1])


@pytest.mark.parametrize("length", [64, 5000])
def test_prompt_longer_than_context_names_both_numbers(length: int) -> None:
    error = refuse(SMALL, Request("a", [1] * length))
    assert "this model's maximum context length is 64 tokens" in error.message
    assert f"prompt is too long: {length} tokens > 63 maximum" in error.message
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")


def test_more_pages_than_the_pool_names_both_numbers() -> None:
    tight = small(pools=[3])
    error = refuse(tight, Request("a", [1] * 13))
    assert "13 tokens > 12 maximum" in error.message and "more pages" in error.message
    error = refuse(tight, Request("a", [1] * 8, SamplingParams(max_tokens=6)))
    assert "needs room for 13" in error.message and error.param == "max_tokens"
    Engine(tight).add(Request("a", [1] * 12))
    Engine(tight).add(Request("a", [1] * 8, SamplingParams(max_tokens=5)))


def test_a_window_makes_long_answers_fit() -> None:
    tight = small(CacheGroup("window", 4, 5), pools=[3])
    driver = toy_driver(tight)
    driver.add(Request("a", [1] * 40))
    got = driver.run()["a"]
    assert len(got.tokens) == SMALL.context - 40


def test_foreign_tokens_duplicate_ids_and_stop_without_tokenizer() -> None:
    assert "token id 64" in refuse(SMALL, Request("a", [1, 64])).message
    assert "token id -1" in refuse(SMALL, Request("a", [-1, 3])).message
    assert refuse(SMALL, Request("a", [1], SamplingParams(stop=("x",)))).param == "stop"
    engine = Engine(SMALL)
    engine.add(Request("a", [1]))
    with pytest.raises(InvalidRequestError, match="already in use"):
        engine.add(Request("a", [1]))


def test_capacity_is_checked() -> None:
    with pytest.raises(InvalidRequestError, match=r"pools\[0\]"):
        Engine(replace(SMALL, pools=(0,)))
    with pytest.raises(InvalidRequestError, match="2 pools for 1 cache group"):
        Engine(replace(SMALL, pools=(1, 1)))
    with pytest.raises(InvalidRequestError, match="max_batch is 5"):
        Engine(replace(SMALL, max_batch=5))


def test_max_tokens_and_context_end_an_answer() -> None:
    driver = toy_driver()
    driver.add(Request("short", [1] * 4, SamplingParams(max_tokens=3)))
    driver.add(Request("long", [1] * 60, SamplingParams(max_tokens=30)))
    got = driver.run()
    assert got["short"].finished == Finished("short", "length", 4, 3)
    assert got["long"].finished == Finished("long", "length", 60, 4)


def test_cancel_waiting_running_and_ended() -> None:
    driver = toy_driver(replace(SMALL, max_batch=1), depth=2)
    driver.add(Request("a", [1] * 4))
    driver.add(Request("b", [1] * 4))
    driver.step()
    driver.cancel("b")
    assert driver.got["b"].finished == Finished("b", "cancelled", 4, 0)
    driver.cancel("a")
    assert driver.got["a"].finished == Finished("a", "cancelled", 4, 1)
    assert driver.engine.has_work, "a step is still in flight"
    assert driver.engine.stats().pages_free == SMALL.pools[0], "what comes next writes later"
    driver.run()
    assert driver.engine.cancel("a") == [] == driver.engine.cancel("unknown")


def test_an_id_can_be_used_again_while_its_last_step_is_in_flight() -> None:
    driver = toy_driver(depth=2)
    driver.add(Request("a", [1] * 4))
    driver.step()
    driver.cancel("a")
    driver.add(Request("a", [1] * 4, SamplingParams(max_tokens=2)))
    assert driver.run()["a"].finished == Finished("a", "length", 4, 2, cached_tokens=3)


def test_end_token_is_counted_but_not_part_of_the_answer() -> None:
    engine = Engine(SMALL, [5], ByteTokenizer())
    engine.add(Request("a", [14]))
    engine.plan()
    assert engine.commit(Result([17], [-0.5])) == [TextDelta("a", "a", (17,), (-0.5,))]
    engine.plan()
    assert engine.commit(Result([5], [-1.0])) == [Finished("a", "stop", 1, 2)]


def test_half_a_character_comes_out_at_the_end() -> None:
    engine = Engine(SMALL, [0], ByteTokenizer())
    engine.add(Request("a", [14], SamplingParams(max_tokens=1)))
    engine.plan()
    events = engine.commit(Result([2], [0.0]))
    assert events == [
        TextDelta("a", "", (2,), (0.0,)),
        TextDelta("a", "\ufffd"),
        Finished("a", "length", 1, 1),
    ]


def test_a_stop_string_in_what_was_held_back() -> None:
    engine = Engine(SMALL, [0], ByteTokenizer())
    engine.add(Request("a", [17], SamplingParams(max_tokens=1, stop=("\ufffd",))))
    engine.plan()
    events = engine.commit(Result([2], [0.0]))
    assert events[1:] == [Finished("a", "stop", 1, 1, "\ufffd")]


def test_a_failed_device_ends_everything_and_the_engine_goes_on() -> None:
    driver = toy_driver(replace(SMALL, max_batch=2), depth=3)
    for name in "abc":
        driver.add(Request(name, [1] * 6))
    driver.step()
    driver.tickets.clear()
    driver.take(driver.engine.fail())
    assert [g.finished and g.finished.reason for g in driver.got.values()] == ["error"] * 3
    assert not driver.engine.has_work
    driver.executor = ToyExecutor(driver.engine.capacity)
    driver.add(Request("d", [1] * 6, SamplingParams(max_tokens=4)))
    assert len(driver.run()["d"].tokens) == 4


def test_a_result_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    engine = Engine(SMALL)
    with pytest.raises(RuntimeError, match="without a planned step"):
        engine.commit(Result([], []))
    engine.add(Request("a", [1]))
    engine.plan()
    for bad in (Result([], []), Result([1, 2], [0.0, 0.0]), Result([1], []), Result([64], [0.0])):
        with pytest.raises(DeviceError):
            engine.commit(bad)
    engine.check_integrity()
    assert len(engine.commit(Result([1], [0.0]))) == 1
