"""The CPU's kernels of Gemma 3n's states, and of queries that grow, against their twins."""

from __future__ import annotations

from mlcc_compiler.kernels.cpu.elementwise import altup, rope
from tests.compiler.kernels.altup_cases import (
    check_above,
    check_growth,
    check_match_magnitude,
    check_mix,
)
from tests.compiler.kernels.cpu_kernels import run


def test_mix() -> None:
    check_mix(run, altup.mix)


def test_match_magnitude() -> None:
    check_match_magnitude(run, altup.match_magnitude)


def test_above() -> None:
    check_above(run, altup.above)


def test_growth() -> None:
    check_growth(run, rope.growth)
