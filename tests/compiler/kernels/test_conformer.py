"""Kernels of Conformers against their twins, on CPU and GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioCumulativeGroupNorm

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


@pytest.mark.parametrize(("groups", "places", "channels"), [(2, 6, 16), (1, 3, 5), (3, 4, 160)])
def test_cumulative_norm(of: KernelSet, groups: int, places: int, channels: int) -> None:
    n, marks = len(TWO_TEXTS), groups * places
    width = marks * channels
    x = normal(0, n, width, scale=2) + 5
    here = (normal(1, n, marks) > -0.5).astype(np.float32)
    here[8] = 0  # a text's last row, which is left out of all
    sizes, wanted = ((width,), (marks,), groups), [((n, 3 * groups), "float32")]
    (moments,) = of.run(of.kernels.group_moments, sizes, [x, here], wanted)
    expected = conformer.group_moments(x.astype(np.float64), here, groups)
    np.testing.assert_allclose(moments, expected, rtol=2e-5, atol=2e-5)
    given = [x, here, moments, normal(2, channels), TWO_TEXTS]
    norm_sizes = ((width,), (marks,), (3 * groups,), (channels,), (), 1e-3)
    (y,) = of.run(of.kernels.cumulative_norm, norm_sizes, given, [((n, width), "float32")])
    whole = conformer.cumulative_norm(*(each.astype(np.float64) for each in given), 1e-3)
    np.testing.assert_allclose(y, whole, rtol=1e-4, atol=2e-5)
    assert not y[8].any()


def test_cumulative_norm_is_that_of_transformers() -> None:
    rows, groups, places, channels = 7, 2, 4, 6
    x, weight = normal(0, rows * groups, places, channels, scale=2) + 3, normal(1, channels)
    norm = Gemma3nAudioCumulativeGroupNorm(channels, (places,), eps=1e-3)
    norm.weight.data = torch.from_numpy(weight)
    with torch.no_grad():
        wanted = norm(torch.from_numpy(x)[None])[0].numpy()
    flat, here = x.reshape(rows, -1), np.ones((rows, groups * places), np.float32)
    moments = conformer.group_moments(flat, here, groups)
    found = conformer.cumulative_norm(flat, here, moments, weight, np.arange(rows), 1e-3)
    np.testing.assert_allclose(found, wanted.reshape(rows, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [24, 5])
def test_next_rows(of: KernelSet, width: int) -> None:
    x = normal(0, len(TWO_TEXTS), width)
    wanted = [(x.shape, "float32")]
    (y,) = of.run(of.kernels.next_rows, ((width,), ()), [x, TWO_TEXTS], wanted)
    np.testing.assert_array_equal(y, conformer.next_rows(x, TWO_TEXTS))
    np.testing.assert_array_equal(y[:8], x[1:9])
    assert not y[8].any() and not y[13].any()
