"""Routing: a request goes to the engine with its prefix unless the queue there is long, and no
engine starves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mlcc.scale.fleet import EXPECTED_S, EngineStatus, Fleet, Prompt

LONG = Prompt(1000, [(250, 1), (500, 2), (900, 3)])


def fleet(count: int, with_status: bool = True) -> Fleet:
    made = Fleet(seed=1)
    made.set_engines([f"e{n}" for n in range(count)])
    if with_status:
        for n in range(count):
            made.update(f"e{n}", EngineStatus(room=8), 0.0)
    return made


def chosen(made: Fleet, prompt: Prompt, now: float = 0.0, **among: set[str]) -> str:
    choice = made.choose(prompt, now, **among)
    assert choice is not None
    return choice.name


def test_an_engine_is_required() -> None:
    assert fleet(0).choose(LONG, 0.0) is None
    assert fleet(2).choose(LONG, 0.0, among=set()) is None


def test_the_longest_hit_wins() -> None:
    made = fleet(16)
    made.update("e5", EngineStatus({1, 2}), 0.0)
    made.update("e9", EngineStatus({1, 2, 3}), 0.0)
    choice = made.choose(LONG, 0.0)
    assert choice is not None and (choice.name, choice.hit) == ("e9", 900)


def test_a_long_queue_outweighs_any_hit() -> None:
    made = fleet(4)
    made.update("e2", EngineStatus({1, 2, 3}, live=40, room=8), 0.0)
    assert chosen(made, LONG) != "e2"


def test_short_pages_outweigh_a_small_hit() -> None:
    made = fleet(2)
    made.update("e0", EngineStatus({1}, room=8, free_tokens=0), 0.0)
    made.update("e1", EngineStatus(room=8, free_tokens=5000), 0.0)
    assert chosen(made, LONG) == "e1"


def test_a_burst_of_one_prompt_goes_together_before_any_report() -> None:
    made = fleet(8)
    first = chosen(made, LONG)
    assert chosen(made, LONG, 0.01) == first


def test_expected_hashes_that_are_never_reported_are_forgotten() -> None:
    made = fleet(8)
    first = chosen(made, LONG)
    made.ended(first)
    later = EXPECTED_S + 1
    for n in range(8):
        made.update(f"e{n}", EngineStatus(room=8), later)
    choice = made.choose(LONG, later)
    assert choice is not None and choice.hit == 0


def test_one_that_is_gone_gets_nothing_and_one_that_returns_is_new() -> None:
    made = fleet(3)
    made.update("e1", EngineStatus({1, 2, 3}), 0.0)
    made.set_engines(["e0", "e2"])
    assert {chosen(made, LONG) for _ in range(20)} <= {"e0", "e2"}
    made.set_engines(["e0", "e1", "e2"])
    only = made.choose(LONG, 0.0, among={"e1"})
    assert only is not None and only.hit == 0


def test_a_session_stays_and_leaves_one_that_is_much_busier() -> None:
    made = fleet(4)
    prompts = [Prompt(100, [(64, 100 + n)], session="s") for n in range(12)]
    home = chosen(made, prompts[0])
    made.ended(home)
    for prompt in prompts[1:]:
        assert chosen(made, prompt) == home
        made.ended(home)
    made.update(home, EngineStatus(live=60, room=8), 1.0)
    assert chosen(made, prompts[0], 1.0) != home


def test_without_a_word_it_is_the_less_loaded_of_two() -> None:
    """Loads differ by little after thousands of requests that do not end."""
    made = fleet(16, with_status=False)
    counts = Counter(chosen(made, Prompt(10)) for _ in range(3200))
    assert len(counts) == 16 and max(counts.values()) - min(counts.values()) < 30


@given(st.lists(st.integers(0, 2), min_size=50, max_size=300), st.integers(2, 9))
def test_no_engine_is_overloaded_by_hits(kinds: list[int], engines: int) -> None:
    """Requests that never end, with three prompts: for any hits, loads stay balanced."""
    made = fleet(engines)
    counts = Counter({f"e{n}": 0 for n in range(engines)})
    for kind in kinds:
        counts[chosen(made, Prompt(512, [(256, kind), (480, kind + 10)]))] += 1
    assert max(counts.values()) - min(counts.values()) <= 10


@given(st.data())
def test_random_events_keep_the_index_consistent(data: st.DataObject) -> None:
    """Holders of a hash: engines that reported it or are expected to have it, and no others."""
    made, now = fleet(4), 0.0
    for _ in range(data.draw(st.integers(0, 30))):
        now += data.draw(st.sampled_from((0.0, 1.0, EXPECTED_S)))
        what = data.draw(st.integers(0, 3))
        name = f"e{data.draw(st.integers(0, 3))}"
        if what == 0 and name in made._engines:
            made.update(name, EngineStatus(data.draw(st.sets(st.integers(0, 5)))), now)
        elif what == 1:
            made.choose(Prompt(100, [(16, data.draw(st.integers(0, 5)))]), now)
        elif what == 2:
            made.set_engines(data.draw(st.sets(st.sampled_from(("e0", "e1", "e2", "e3")))))
        else:
            made.ended(name)
        found = {
            (with_status, name) for with_status, names in made._holders.items() for name in names
        }
        wanted = {
            (with_status, engine.name)
            for engine in made._engines.values()
            for with_status in engine.hashes | engine.expected.keys()
        }
        assert found == wanted
