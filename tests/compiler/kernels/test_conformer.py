"""Kernels of Conformers against their twins, on CPU and GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from mlcc.device.reference import conformer
from mlcc_compiler.kernels.cpu.elementwise import conformer as cpu_conformer
from mlcc_compiler.kernels.gpu.elementwise import conformer as gpu_conformer
from tests.compiler.kernels.cases import cpu_kernels, gpu_kernels
from tests.compiler.kernels.cases.cpu_kernels import normal


class KernelSet(NamedTuple):
    """A kernel set, and a function that runs its kernels."""

    run: Any
    kernels: ModuleType


SETS = {
    "cpu": KernelSet(cpu_kernels.run, cpu_conformer),
    "gpu": KernelSet(gpu_kernels.run, gpu_conformer),
}
TWO_TEXTS = np.array([*range(9), *range(5)], np.int32)
"""Positions of the rows of a step."""


@pytest.fixture(params=SETS)
def of(request: pytest.FixtureRequest) -> KernelSet:
    if request.param == "gpu":
        request.getfixturevalue("vulkan")
    return SETS[request.param]


@pytest.mark.parametrize(("heads", "head_dim", "window"), [(2, 8, 4), (1, 20, 12), (3, 160, 1)])
def test_relative_attention(of: KernelSet, heads: int, head_dim: int, window: int) -> None:
    n, width = len(TWO_TEXTS), heads * head_dim
    q, k, v = (normal(seed, n, width, scale=2) for seed in range(3))
    given = [q, k, v, normal(3, window, width), TWO_TEXTS]
    sizes = ((width,), (width,), (width,), (window, width), ())
    wanted = [((n, width), "float32")]
    (y,) = of.run(of.kernels.relative_attention, (*sizes, heads, 5.0), given, wanted)
    expected = conformer.relative_attention(*given, heads, 5.0)
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
    assert window == 1 or np.abs(y - v).max() > 0.1


@pytest.mark.parametrize(("channels", "taps"), [(24, 5), (5, 2)])
def test_depthwise_conv(of: KernelSet, channels: int, taps: int) -> None:
    n = len(TWO_TEXTS)
    given = [normal(0, n, channels), normal(1, taps, channels), TWO_TEXTS]
    sizes, wanted = ((channels,), (taps, channels), ()), [((n, channels), "float32")]
    (y,) = of.run(of.kernels.depthwise_conv, sizes, given, wanted)
    np.testing.assert_allclose(y, conformer.depthwise_conv(*given), rtol=1e-5, atol=1e-5)
    # A text's first row reads none of the text before.
    np.testing.assert_allclose(y[9], given[0][9] * given[1][-1], rtol=1e-5, atol=1e-6)
