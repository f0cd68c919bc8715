"""Sampling on the GPU against the twin, token by token, at the extremes, and as generated text.

The kernel adds masses in float32, the twin in float64. Where they differ, the boundary that decides
has to lie within BOUND of the whole mass: the twin must give the kernel's token when the uniform,
top_p and min_p are moved by as much. Such near ties are counted, and must be few.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import sampling as twin
from mlcc.engine.batch.filters import NO_FILTERS
from mlcc.engine.batch.tables import StepLayout
from mlcc.engine.sampling.logits_processor import BANNED
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling import sample
from mlcc_compiler.kernels.gpu.sampling.partial import Slices
from tests.compiler.kernels.gpu_kernels import F16, SMALL, barriers, run, source
from tests.compiler.kernels.sample_cases import (
    FILTERS,
    Row,
    chi_square,
    columns,
    distributions,
    few_values,
    filter_rows,
    layout_for,
    near,
    not_numbers,
    with_uniforms,
)
from tests.compiler.kernels.step_cases import LAYOUTS, sample_step, words_of

pytestmark = pytest.mark.usefixtures("vulkan")

Array = Any
BOUND = 1e-6
FILTER_BOUND = 1e-5


def draw(logits: Array, rows: Sequence[Row], gpu: Gpu = F16) -> tuple[Array, Array]:
    """The kernel's (tokens, logprobs) of logits under (temperature, ..., uniform) per row."""
    layout = layout_for(len(rows))
    step = words_of(sample_step(layout, rows))
    return launched(layout, logits, step, gpu)


def launched(layout: StepLayout, logits: Array, step: Array, gpu: Gpu = F16) -> tuple[Array, Array]:
    """The kernel's (tokens, logprobs) of logits and a step's words."""
    count, vocab = logits.shape
    stats_shape = (count, *Slices.of(gpu, vocab).stats_shape)
    outputs = [((count,), "int32"), ((count,), "float32"), (stats_shape, "uint32")]
    tokens, logprobs, _ = run(sample.sample, (vocab, layout), [logits, step], outputs, gpu)
    return tokens, logprobs


def near_ties(logits: Array, rows: Sequence[Row], gpu: Gpu = F16) -> int:
    """How often the kernel differs from the twin; fails where that is not by a near tie."""
    tokens, logprobs = draw(logits, rows, gpu)
    with np.errstate(all="ignore"):
        expected, _ = twin.sample(logits, *columns(rows))
        for row, token, logprob in zip(logits, tokens, logprobs, strict=True):
            exact = twin.log_softmax(row.astype(np.float64))[token]
            np.testing.assert_allclose(logprob, exact, rtol=1e-5, atol=1e-5)
    different = np.nonzero(tokens != expected)[0].tolist()
    for i in different:
        assert tokens[i] in moved(logits[i], rows[i]), (rows[i], tokens[i], expected[i])
    return len(different)


def moved(logits: Array, row: Row) -> Array:
    """The twin's tokens as each boundary moves by BOUND or not."""
    temperature, top_k, top_p, min_p, uniform = row
    signs = np.array(list(itertools.product((-BOUND, 0, BOUND), repeat=3)))
    count = len(signs)
    return twin.sample(
        np.tile(logits, (count, 1)),
        np.full(count, temperature),
        np.full(count, top_k),
        top_p + signs[:, 0],
        min_p * (1 + signs[:, 1]),
        uniform + signs[:, 2],
        *(np.full(count, value) for value in NO_FILTERS),
    )[0]


def normal_rows(vocab: int, spread: float, rng: np.random.Generator, count: int) -> Array:
    return (rng.standard_normal((count, vocab)) * spread).astype(np.float32)


@pytest.mark.feature("sampling", "vulkan", "runs")
@pytest.mark.parametrize(
    "vocab, gpu", [(1, F16), (2, F16), (17, SMALL), (100, F16), (1000, F16), (1000, SMALL)]
)
def test_agrees_with_the_twin(vocab: int, gpu: Gpu) -> None:
    rng = np.random.default_rng(vocab)
    ties = 0
    for spread in (0.01, 2, 20):
        logits = normal_rows(vocab, spread, rng, len(FILTERS))
        ties += near_ties(logits, with_uniforms(FILTERS, rng), gpu)
    assert ties <= 1


def test_ties_stay_together() -> None:
    """Logits of a few values only: every filter must keep or drop all equals alike."""
    rng = np.random.default_rng(0)
    for k in (1, 59, 60, 61, 299, 300):
        filters = [(1, k, p, m) for p in (1, 0.9, 1e-9) for m in (0, 0.3)]
        logits = few_values(len(filters), 300, rng)
        assert near_ties(logits, with_uniforms(filters, rng)) == 0
    logits = few_values(len(FILTERS), 300, rng)
    assert near_ties(logits, with_uniforms(FILTERS, rng)) == 0


def test_any_filters() -> None:
    """Random filters, out of their range too, on logits of every kind at once."""
    rng = np.random.default_rng(7)
    count, vocab, ties = 600, 1000, 0
    for seed in range(3):
        shape = rng.choice([0.1, 1, 5, 30], count)[:, None]
        logits = (rng.standard_normal((count, vocab)) * shape).astype(np.float32)
        logits[rng.random((count, vocab)) < rng.choice([0, 0.5, 0.999], count)[:, None]] = -np.inf
        logits[np.arange(count), rng.integers(0, vocab, count)] = seed * 10 - 10  # never all -inf
        parameters = (
            rng.choice([-1, 0, 1e-3, 0.3, 0.7, 1, 2, 100], count),
            rng.choice([-5, 0, 1, 2, 3, 40, 500, 999, 1000, 1001], count),
            np.where(rng.random(count) < 0.5, rng.random(count), 1 + rng.random(count)),
            np.where(rng.random(count) < 0.5, rng.random(count) ** 4, -1),
            rng.random(count),
        )
        rows: list[Row] = list(
            zip(*(p.astype(np.float32).tolist() for p in parameters), strict=True)
        )
        ties += near_ties(logits, rows)
    assert ties <= 2


def test_extreme_logits() -> None:
    """Far apart, all equal, just one, subnormal: only what has the largest mass may come."""
    logits = np.zeros((7, 100), np.float32)
    logits[0, ::2], logits[0, 1::2] = 1e30, -1e30
    logits[1] = 1e30
    logits[2] = -1e30
    logits[3], logits[3, 64] = -1e30, 1e30
    logits[4], logits[4, 30:32] = np.finfo(np.float32).min, np.finfo(np.float32).max
    logits[5], logits[5, 99] = -np.inf, -1e30
    logits[6, 50] = 1e-42
    for filters in [(0, 0, 1, 0), (1, 0, 1, 0), (0.7, 40, 0.9, 0.1), (1, 1, 1, 0), (1, 0, 1e-9, 0)]:
        for uniform in (0, 0.3, 0.99):
            rows = [(*filters, uniform)] * len(logits)
            assert near_ties(logits, rows) == 0


@pytest.mark.parametrize(
    "filters", [(0, 0, 1, 0), (1, 0, 1, 0), (1, 5, 0.9, 0.1), (1e-30, 3, 0, 2), (1e-45, 0, 1, 0)]
)
def test_what_is_not_a_number(filters: Row) -> None:
    """NaN and infinities never crash, and never give a token out of range or a NaN one."""
    logits, first, last = not_numbers()
    for uniform in (0.0, 0.3, 0.999):
        tokens, _ = draw(logits, [(*filters, uniform)] * len(logits))
        assert (first <= tokens).all() and (tokens <= last).all()


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_uniform(uniform: float) -> None:
    logits = np.zeros((3, 1000), np.float32)
    logits[1, :10] = logits[1, -10:] = -np.inf
    logits[2, 500] = 200  # the others' mass is less than a float can hold
    tokens, _ = draw(logits, [(1, 0, 1, 0, uniform)] * 3)
    assert tokens.tolist() == ([0, 10, 500] if uniform == 0 else [999, 989, 500])


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=str)
def test_greedy_takes_the_first_of_equals(gpu: Gpu) -> None:
    logits = np.zeros((5, 1000), np.float32)
    wanted = [(3, 150), (17, 18), (999, 5), (0, 899), (256, 257)]
    for row, where in enumerate(wanted):
        logits[row, list(where)] = 5
    tokens, logprobs = draw(logits, [(0, 0, 1, 0, 0.9)] * 5, gpu)
    assert tokens.tolist() == [min(where) for where in wanted]
    np.testing.assert_allclose(logprobs, 5 - np.log(998 + 2 * np.exp(5)), rtol=1e-6)


def test_no_rows() -> None:
    assert [o.size for o in draw(np.zeros((0, 100), np.float32), [])] == [0, 0]


def test_rows_beyond_the_step_s_are_left_alone() -> None:
    layout, logits = LAYOUTS[0], normal_rows(100, 1, np.random.default_rng(0), 5)
    step = words_of(sample_step(layout, [(0.0, 0, 1.0, 0.0, 0.5)] * 2))
    tokens, logprobs = launched(layout, logits, step)
    assert tokens[:2].tolist() == logits[:2].argmax(axis=1).tolist()
    assert (tokens[2:] == 77).all() and (logprobs[2:] == 77).all()


def test_a_given_token_is_told_and_not_drawn() -> None:
    rows = [(0.0, 0, 1.0, 0.0, 0.5), (1.0, 3, 0.9, 0.0, 0.2)] * 2
    logits = normal_rows(100, 3, np.random.default_rng(4), 4)
    layout, given = layout_for(4), [-1, 99, 7, -1]
    step = words_of(sample_step(layout, rows, given))
    tokens, logprobs = launched(layout, logits, step)
    expected, expected_logprobs = twin.sample(logits, *columns(rows), given=np.array(given))
    assert tokens.tolist() == expected.tolist() and tokens[1:3].tolist() == [99, 7]
    np.testing.assert_allclose(logprobs, expected_logprobs, rtol=1e-5, atol=1e-5)


def test_parameters_lie_where_the_layout_says() -> None:
    rng = np.random.default_rng(2)
    rows, logits = with_uniforms(FILTERS[:40], rng), normal_rows(100, 1, rng, 40)
    expected = draw(logits, rows)[0]
    for layout in LAYOUTS[1:]:
        step = words_of(sample_step(layout, rows))
        tokens, _ = launched(layout, logits, step)
        np.testing.assert_array_equal(tokens, expected)


def test_results_repeat_to_the_bit() -> None:
    rng = np.random.default_rng(3)
    logits, rows = normal_rows(1000, 2, rng, len(FILTERS)), with_uniforms(FILTERS, rng)
    tokens, logprobs = draw(logits, rows)
    alone = [draw(logits[i : i + 1], rows[i : i + 1]) for i in range(0, len(rows), 16)]
    assert [int(t[0]) for t, _ in alone] == tokens[::16].tolist()
    assert [p.tobytes() for _, p in alone] == [p.tobytes() for p in logprobs[::16]]
    again, logprobs_again = draw(logits, rows)
    assert again.tobytes() == tokens.tobytes() and logprobs_again.tobytes() == logprobs.tobytes()


@pytest.mark.feature("samplers", "vulkan", "runs")
@pytest.mark.parametrize("vocab, gpu", [(1, F16), (100, SMALL), (1000, F16)])
def test_every_filter_agrees_with_the_twin(vocab: int, gpu: Gpu) -> None:
    """Where it does not, the twin gives the same token with parameters moved by FILTER_BOUND."""
    rng, ties = np.random.default_rng(vocab), 0
    for spread in (0.5, 2, 8):
        rows = filter_rows(rng)
        logits = normal_rows(vocab, spread, rng, len(rows))
        logits[:, vocab // 2 : vocab // 2 + vocab // 50] = BANNED
        tokens, _ = draw(logits, rows, gpu)
        expected, _ = twin.sample(logits, *columns(rows))
        for i in np.nonzero(tokens != expected)[0].tolist():
            moved = near(rows[i], rng, FILTER_BOUND)
            tried = twin.sample(np.tile(logits[i], (len(moved), 1)), *columns(moved))[0]
            assert tokens[i] in tried, (rows[i], tokens[i], expected[i])
            ties += 1
    assert ties <= 1


def test_filters_keep_equals_together() -> None:
    rng = np.random.default_rng(3)
    rows = filter_rows(rng, 0)
    logits = few_values(len(rows), 300, rng)
    expected, _ = twin.sample(logits, *columns(rows))
    np.testing.assert_array_equal(draw(logits, rows)[0], expected)


def test_distribution() -> None:
    """Chi-square of 2000 draws for each filter against the probabilities of the twin."""
    rng = np.random.default_rng(5)
    for rows, logits, mass in distributions(rng, 2000):
        tokens, _ = draw(np.tile(logits, (len(rows), 1)), rows, SMALL)
        chi_square(np.bincount(tokens, minlength=64), mass)


def test_barriers_are_under_no_condition() -> None:
    """Browsers refuse barriers in control flow that they cannot prove uniform; lavapipe does not.
    Loops are counted by the stage and the row's parameters, which are read-only: uniform. So is the
    one condition: whether the workgroup's row is one of the step's, whose count is read-only."""
    text = source("webgpu", sample.sample(F16, 128256, LAYOUTS[0]))
    assert barriers(text, [LAYOUTS[0].header.at("rows")]) > 5


def test_metal_takes_subgroups() -> None:
    gpu = Gpu(subgroup=32, shared_bytes=32768)
    text = source("metal", sample.sample(gpu, 128256, LAYOUTS[0]), subgroup=True)
    assert "simd_shuffle_down" in text and "double" not in text and "half" not in text
