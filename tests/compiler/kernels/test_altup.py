"""Kernels of Gemma 3n's states, and of queries that grow, against their twins, on CPU and GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import pytest

from mlcc_compiler.kernels.cpu.elementwise import altup as cpu_altup
from mlcc_compiler.kernels.cpu.elementwise import rope as cpu_rope
from mlcc_compiler.kernels.gpu.elementwise import altup as gpu_altup
from mlcc_compiler.kernels.gpu.elementwise import rope as gpu_rope
from tests.compiler.kernels.cases import cpu_kernels, gpu_kernels
from tests.compiler.kernels.cases.altup import (
    check_above,
    check_growth,
    check_match_magnitude,
    check_mix,
)


class KernelSet(NamedTuple):
    """A kernel set, and a function that runs its kernels."""

    run: Any
    altup: ModuleType
    rope: ModuleType


SETS = {
    "cpu": KernelSet(cpu_kernels.run, cpu_altup, cpu_rope),
    "gpu": KernelSet(gpu_kernels.run, gpu_altup, gpu_rope),
}


@pytest.fixture(params=SETS)
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    if request.param == "gpu":
        request.getfixturevalue("vulkan")
    return SETS[request.param]


def test_mix(kernels: KernelSet) -> None:
    check_mix(kernels.run, kernels.altup.mix)


def test_match_magnitude(kernels: KernelSet) -> None:
    check_match_magnitude(kernels.run, kernels.altup.match_magnitude)


def test_above(kernels: KernelSet) -> None:
    check_above(kernels.run, kernels.altup.above)


def test_growth(kernels: KernelSet) -> None:
    check_growth(kernels.run, kernels.rope.growth)
