"""The GPU's kernels of Gemma 3n's states, and of queries that grow, against their twins."""

from __future__ import annotations

import pytest

from mlcc_compiler.kernels.gpu import altup, rope
from tests.compiler.kernels.altup_cases import (
    check_above,
    check_growth,
    check_match_magnitude,
    check_mix,
)
from tests.compiler.kernels.gpu_kernels import run

pytestmark = pytest.mark.usefixtures("vulkan")


def test_mix() -> None:
    check_mix(run, altup.mix)


def test_match_magnitude() -> None:
    check_match_magnitude(run, altup.match_magnitude)


def test_above() -> None:
    check_above(run, altup.above)


def test_growth() -> None:
    check_growth(run, rope.growth)
