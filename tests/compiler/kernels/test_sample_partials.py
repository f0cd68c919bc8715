"""Sampling of rows that are cut into many slices, most of which are not read again: against the
twin, at the edges of slices, and as a distribution, with the bounds of `test_sample.py`."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.device.reference import sampling as twin
from mlcc.engine.sampling.logits_processor import BANNED
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling import sample
from mlcc_compiler.kernels.gpu.sampling.partial import Slices
from mlcc_targets import Choices, get_target
from tests.compiler.kernels.cases.gpu_kernels import F16, VULKAN, source
from tests.compiler.kernels.cases.sample import (
    FILTERS,
    chi_square,
    columns,
    filter_rows,
    near,
    with_uniforms,
)
from tests.compiler.kernels.cases.step import LAYOUTS
from tests.compiler.kernels.test_sample import FILTER_BOUND, near_ties, normal_rows
from tests.compiler.kernels.test_sample import gpu_draw as draw

pytestmark = pytest.mark.usefixtures("vulkan")


@pytest.mark.parametrize("vocab, every", [(32000, 3), (151936, 12), (262144, 24)])
def test_large_vocabularies(vocab: int, every: int) -> None:
    rng = np.random.default_rng(vocab)
    filters = [*FILTERS[::every], (0.8, 50, 0.95, 0.01), (1.5, 20000, 0.99, 0), (1, 0, 0.9999, 0)]
    logits = normal_rows(vocab, 3, rng, len(filters))
    assert near_ties(logits, with_uniforms(filters, rng)) <= 1


@pytest.mark.parametrize("vocab", [32000, 262144])
def test_every_filter_on_large_vocabularies(vocab: int) -> None:
    """Each filter keeps the twin's tokens where most slices of a row are not read again."""
    rng, ties = np.random.default_rng(vocab), 0
    rows = filter_rows(rng, 0)[:: 1 if vocab < 100_000 else 4]
    logits = normal_rows(vocab, 2, rng, len(rows))
    logits[:, 500:900] = BANNED
    tokens, _ = draw(logits, rows)
    expected, _ = twin.sample(logits, *columns(rows))
    for i in np.nonzero(tokens != expected)[0].tolist():
        moved = near(rows[i], rng, FILTER_BOUND)
        tried = twin.sample(np.tile(logits[i], (len(moved), 1)), *columns(moved))[0]
        assert tokens[i] in tried, (rows[i], tokens[i], expected[i])
        ties += 1
    assert ties <= 1


def test_what_lies_at_the_edges_of_slices() -> None:
    """The largest logits at the ends of slices, a slice of nothing, and the last one of few."""
    vocab = 10 * 256 + 3
    logits = np.full((3, vocab), -30, np.float32)
    logits[0, [255, 256, 511, vocab - 1]] = [3, 2, 1, 2.5]
    logits[1, 256:512], logits[1, [255, 512]] = -np.inf, 1
    logits[2] = BANNED
    logits[2, -3:] = [0, 1, 2]
    for filters in [(0, 0, 1, 0), (1, 0, 1, 0), (1, 3, 1, 0), (1, 2, 0.9, 0), (0.5, 0, 0.95, 0)]:
        for uniform in (0, 0.2, 0.5, 0.8, 0.999999):
            assert near_ties(logits, [(*filters, uniform)] * 3) == 0


def test_its_text_is_short() -> None:
    """SwiftShader's time grows much faster than the text: 40 KB compile as fast as one launch's 46
    did, 71 KB took 94 s. This test fails if a stage's text is emitted twice."""
    text = source("webgpu", sample.sample(F16, 151936, LAYOUTS[0]))
    assert len(text.partition("Function: kernel_kernel_1")[2]) in range(1000, 46_000)


def test_how_rows_are_cut() -> None:
    """The slices of a row of logits, for the default limits and for CUDA's."""
    found = {(v, t): Slices.of(Gpu(threads=t), v) for v in (1, 1000, 262144) for t in (64, 256)}
    assert found[262144, 256] == Slices(262144, 512) and found[262144, 256].count == 512
    assert found[262144, 64].size == 512, "a workgroup of 64 reads no larger ones"
    cuda = Gpu.of(get_target("cuda", Choices()))
    assert Slices.of(cuda, 262144) == Slices(262144, 256)
    assert Slices.of(F16, 262144) == Slices.of(Gpu.of(get_target("webgpu", Choices())), 262144)
    assert Slices.of(VULKAN, 262144) == Slices.of(cuda, 262144)
    assert found[1000, 64] == Slices(1000, 256) and found[1, 256].count == 1


@pytest.mark.parametrize(
    "vocab, count", [(32, 300), (1000, 300), pytest.param(262144, 100, marks=pytest.mark.long)]
)
def test_distribution_over_slices(vocab: int, count: int) -> None:
    """Chi-square of draws against the twin's probabilities, tokens of about a sixteenth together:
    of a row's slices each has some of them."""
    rng = np.random.default_rng(vocab)
    logits = normal_rows(vocab, 2.5, rng, 1)
    for filters in [(1.3, 0, 1, 0), (0.8, 40, 0.95, 0), (1, 0, 0.9, 0)]:
        rows = [(*filters, float(u)) for u in rng.random(count)]
        tokens, _ = draw(np.tile(logits, (count, 1)), rows)
        mass = twin.filtered(logits[0].astype(np.float64), *filters)
        bins = np.minimum(np.cumsum(mass) / mass.sum() * 16, 15).astype(int)
        chi_square(
            np.bincount(bins[tokens], minlength=16), np.bincount(bins, weights=mass, minlength=16)
        )
