"""Several answers to one prompt: it is computed once, and each answer equals that of a single
request."""

from __future__ import annotations

import pytest

from mlcc.engine import Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import InvalidRequestError
from tests.runtime.engine.helpers.drive import Driver, small, toy_driver

PROMPT = list(range(13))
WINDOW, STATE = CacheGroup("window", 4, 6), CacheGroup("state")


def add(driver: Driver, count: int, prompt: list[int] = PROMPT, **fields: str) -> None:
    """A family `f` of so many, each with a seed of its own."""
    for i in range(count):
        sampling = SamplingParams(max_tokens=6, ignore_eos=True, seed=i)
        driver.add(Request(f"f{i}", prompt, sampling, sampling_group="f", **fields))


def alone(i: int, prompt: list[int] = PROMPT) -> list[int]:
    """The tokens of answer i, computed by an engine that runs nothing else."""
    driver = toy_driver()
    driver.add(Request("x", prompt, SamplingParams(max_tokens=6, ignore_eos=True, seed=i)))
    return driver.run()["x"].tokens


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("length", [1, 4, 12, 13, 40])
def test_a_prompt_is_computed_once(length: int, prefix_cache: bool) -> None:
    """The prompt is computed once, except its last token, whose logits each answer needs; 40 tokens
    take three steps."""
    prompt = list(range(length))
    driver = toy_driver(prefix_cache=prefix_cache)
    add(driver, 4, prompt)
    got = driver.run()
    assert driver.engine.stats().computed_tokens == length + 3 + 4 * 5
    assert [got[f"f{i}"].tokens for i in range(4)] == [alone(i, prompt) for i in range(4)]
    finished = [got[f"f{i}"].finished for i in range(4)]
    assert [done and done.cached_tokens for done in finished] == [0] + [length - 1] * 3


def test_a_window_is_shared_too() -> None:
    driver = toy_driver(small(CacheGroup("paged", 4), WINDOW, pools=(64, 64)))
    add(driver, 4)
    driver.run()
    assert driver.engine.stats().cached_tokens >= 12 + 12, "a step copies four pages, of two groups"


def test_of_a_state_what_follows_the_last_block_is_computed_again() -> None:
    driver = toy_driver(small(CacheGroup("paged", 4), STATE, pools=(64, 16)))
    add(driver, 3)
    got = driver.run()
    assert [got[f"f{i}"].finished.cached_tokens for i in range(3)] == [0, 12, 12]  # type: ignore[union-attr]


def test_others_need_not_wait_for_a_prompt_that_is_long() -> None:
    driver = toy_driver(small(max_step_tokens=8))
    add(driver, 3, list(range(36)))
    driver.step()
    driver.add(Request("other", [1, 2], SamplingParams(max_tokens=2, ignore_eos=True)))
    for _ in range(4):
        driver.step()
    assert driver.engine.stats().running == 2, "the first of the family and the other"
    driver.run()


def test_if_the_first_ends_early_the_next_computes_the_prompt() -> None:
    driver = toy_driver(small(max_step_tokens=8))
    add(driver, 3, list(range(40)))
    driver.step()
    driver.cancel("f0")
    driver.step()
    assert driver.engine.stats().running == 1
    got = driver.run()
    assert [got[f"f{i}"].tokens for i in (1, 2)] == [alone(i, list(range(40))) for i in (1, 2)]


def test_the_next_turn_still_finds_the_first_answer() -> None:
    """Though its last page was named when it held the prompt only."""
    driver = toy_driver()
    add(driver, 3)
    answer = driver.run()["f0"].tokens
    driver.add(Request("next", [*PROMPT, *answer, 1, 2], SamplingParams(max_tokens=1)))
    finished = driver.run()["next"].finished
    assert finished is not None and finished.cached_tokens == len(PROMPT) + len(answer) - 1


def test_a_family_has_one_prompt_and_is_its_tenants() -> None:
    driver = toy_driver()
    add(driver, 2)
    with pytest.raises(InvalidRequestError, match="another prompt") as caught:
        driver.engine.add(Request("x", [1, 2], sampling_group="f"))
    assert caught.value.param == "sampling_group"
    driver.add(Request("y", [1, 2], SamplingParams(max_tokens=1), "other", sampling_group="f"))
    driver.run()
    driver.add(Request("z", [1, 2], SamplingParams(max_tokens=1), sampling_group="f"))
    assert driver.run()["z"].finished is not None, "the name is free again"
