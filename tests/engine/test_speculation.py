"""Speculation changes when a token comes, and never which: the naive engine's tokens, with guesses
that are right, wrong and in between, of every kind of cache, wish and depth."""

from __future__ import annotations

from guessing import knowing
from hypothesis import given, settings
from hypothesis import strategies as st
from test_against_naive import (
    Arrival,
    arrivals,
    capacities,
    crowds,
    ends,
    run_and_compare,
)

from mlcc.engine import Capacity

wrongs = st.sampled_from([0.0, 0.2, 0.5, 1.0])
numbers = st.integers(0, 2**16)
some = settings(max_examples=120, deadline=None, derandomize=True, database=None)


@some
@given(capacities(), arrivals(), st.integers(1, 3), ends, wrongs, st.integers(1, 6), numbers)
def test_agrees_with_naive(
    capacity: Capacity,
    coming: list[Arrival],
    depth: int,
    eos: set[int],
    wrong: float,
    longest: int,
    seed: int,
) -> None:
    speculator = knowing(capacity, eos, wrong, longest, seed)
    run_and_compare(capacity, coming, depth, eos, speculator=speculator)


@some
@given(crowds(), st.integers(1, 3), ends, wrongs, numbers)
def test_agrees_with_naive_when_pages_are_short(
    crowd: tuple[Capacity, list[Arrival]], depth: int, eos: set[int], wrong: float, seed: int
) -> None:
    speculator = knowing(crowd[0], eos, wrong, 4, seed)
    run_and_compare(*crowd, depth, eos, speculator=speculator)
