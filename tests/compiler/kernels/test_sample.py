"""Sampling against the twin token by token, at the extremes, and as a distribution.

The kernels of a GPU add masses in float32, the twin in float64. Where they differ, the boundary
that decides has to lie within GPU_BOUND of the whole mass: the twin must give the kernel's token
when the uniform, top_p and min_p are moved by as much. Such near ties are counted, and must be few.
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
from mlcc_compiler.kernels.cpu.sampling import sample
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling import sample as gpu_sample
from mlcc_compiler.kernels.gpu.sampling.partial import Slices
from tests.compiler.kernels.cases.cpu_kernels import BEST, CPUS, Cpu, normal, run
from tests.compiler.kernels.cases.gpu_kernels import F16, SMALL, VULKAN, barriers, on_vulkan, source
from tests.compiler.kernels.cases.gpu_kernels import run as gpu_run
from tests.compiler.kernels.cases.sample import (
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
from tests.compiler.kernels.cases.step import LAYOUTS, sample_step, words_of

BOUND = 1e-5
Array = Any
GPU_BOUND = 1e-6
FILTER_BOUND = 1e-5


def draw(
    logits: Any, rows: list[tuple[float, ...]], cpu: Cpu = BEST, *, twins: bool = True
) -> tuple[Any, Any]:
    """(kernel, twin) of logits under (temperature, ..., uniform, *others) per row."""
    layout, vocab = layout_for(len(rows)), logits.shape[1]
    step = words_of(sample_step(layout, rows))
    outputs = [((len(rows),), "int32"), ((len(rows),), "float32")]
    ours = run(sample.sample, (vocab, layout), [logits, step], outputs, cpu)
    if not twins:
        return ours, None
    with np.errstate(all="ignore"):
        return ours, twin.sample(logits, *columns(rows))


def agrees(vocab: int, cpu: Cpu) -> None:
    rng = np.random.default_rng(vocab)
    for spread in (0.01, 2, 20):
        logits = (rng.standard_normal((len(FILTERS), vocab)) * spread).astype(np.float32)
        rows = with_uniforms(FILTERS, rng)
        (tokens, logprobs), (expected, expected_logprobs) = draw(logits, rows, cpu)
        np.testing.assert_array_equal(tokens, expected)
        np.testing.assert_allclose(logprobs, expected_logprobs, rtol=1e-5, atol=1e-5)


@pytest.mark.feature("sampling", "cpu", "runs")
@pytest.mark.parametrize("vocab", [1, 17, 64, 1024, 4100])
def test_agrees_with_the_twin(vocab: int) -> None:
    agrees(vocab, BEST)


@pytest.mark.parametrize("cpu", CPUS[1:], ids=lambda c: c.name)
def test_every_instruction_set(cpu: Cpu) -> None:
    agrees(1101, cpu)


def test_ties_stay_together() -> None:
    """Logits of a few values only: every filter must keep or drop all equals alike."""
    rng = np.random.default_rng(0)
    logits = few_values(len(FILTERS), 300, rng)
    (tokens, _), (expected, _) = draw(logits, with_uniforms(FILTERS, rng))
    np.testing.assert_array_equal(tokens, expected)


def test_large_vocabulary() -> None:
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((12, 49152)) * 3).astype(np.float32)
    filters = [(0.8, 50, 0.95, 0.01), (1, 0, 0.9, 0), (1.5, 20000, 0.99, 0), (0, 0, 1, 0)] * 3
    (tokens, logprobs), (expected, expected_logprobs) = draw(logits, with_uniforms(filters, rng))
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(logprobs, expected_logprobs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_uniform(uniform: float) -> None:
    logits = np.zeros((3, 1000), np.float32)
    logits[1, :10] = logits[1, -10:] = -np.inf
    logits[2, 500] = 200  # the others' mass is less than a float can hold
    (tokens, _), _ = draw(logits, [(1, 0, 1, 0, uniform)] * 3)
    assert tokens.tolist() == ([0, 10, 500] if uniform == 0 else [999, 989, 500])


@pytest.mark.parametrize(
    "filters", [(0, 0, 1, 0), (1, 0, 1, 0), (1, 5, 0.9, 0.1), (1e-30, 3, 0, 2)]
)
def test_what_is_not_a_number(filters: tuple[float, ...]) -> None:
    """NaN and infinities never crash, and never give a token out of range or a NaN one."""
    logits, first, last = not_numbers()
    (tokens, _), _ = draw(logits, [(*filters, 0.3)] * len(logits))
    assert (first <= tokens).all() and (tokens <= last).all()


def test_greedy_takes_the_first_of_equals() -> None:
    logits = np.zeros((4, 200), np.float32)
    for row, where in enumerate([(3, 150), (17, 18), (199, 5), (0, 199)]):
        logits[row, list(where)] = 5
    (tokens, logprobs), _ = draw(logits, [(0, 0, 1, 0, 0.9)] * 4)
    assert tokens.tolist() == [3, 17, 5, 0]
    np.testing.assert_allclose(logprobs, 5 - np.log(198 + 2 * np.exp(5)), rtol=1e-6)


def test_no_rows() -> None:
    (tokens, _), _ = draw(np.zeros((1, 64), np.float32), [(0, 0, 1, 0, 0)])
    assert tokens.tolist() == [0]
    out, _ = draw(np.zeros((0, 64), np.float32), [])
    assert [o.size for o in out] == [0, 0]


def test_rows_beyond_the_step_s_are_left_alone() -> None:
    layout, rows = LAYOUTS[0], [(0.0, 0, 1.0, 0.0, 0.5)] * 2
    outputs = [((5,), "int32"), ((5,), "float32")]
    inputs = [normal(0, 5, 64), words_of(sample_step(layout, rows))]
    tokens, logprobs = run(sample.sample, (64, layout), inputs, outputs)
    assert tokens[:2].tolist() == inputs[0][:2].argmax(axis=1).tolist()
    assert (tokens[2:] == 77).all() and (logprobs[2:] == 77).all()


def test_a_given_token_is_reported_and_not_sampled() -> None:
    logits, rows = normal(3, 4, 64), [(0.0, 0, 1.0, 0.0, 0.5), (1.0, 3, 0.9, 0.0, 0.2)] * 2
    layout, given = layout_for(4), [-1, 63, 7, -1]
    outputs = [((4,), "int32"), ((4,), "float32")]
    inputs = [logits, words_of(sample_step(layout, rows, given))]
    tokens, logprobs = run(sample.sample, (64, layout), inputs, outputs)
    expected, expected_logprobs = twin.sample(logits, *columns(rows), given=np.array(given))
    assert tokens.tolist() == expected.tolist() and tokens[1:3].tolist() == [63, 7]
    np.testing.assert_allclose(logprobs, expected_logprobs, rtol=1e-5, atol=1e-5)


def test_parameters_lie_where_the_layout_says() -> None:
    rows = with_uniforms(FILTERS[:40], np.random.default_rng(2))
    logits = normal(1, 40, 64)
    expected, _ = twin.sample(logits, *columns(rows))
    for layout in LAYOUTS:
        inputs = [logits, words_of(sample_step(layout, rows))]
        outputs = [((40,), "int32"), ((40,), "float32")]
        np.testing.assert_array_equal(
            run(sample.sample, (64, layout), inputs, outputs)[0], expected
        )


@pytest.mark.feature("samplers", "cpu", "runs")
@pytest.mark.parametrize("vocab", [1, 17, 1000])
def test_every_filter_agrees_with_the_twin(vocab: int) -> None:
    """Token by token; a threshold in float32 may fall on another side of a logit than in float64:
    then the twin gives the same token with parameters moved by BOUND, and that must be rare."""
    rng, ties = np.random.default_rng(vocab), 0
    for spread in (0.5, 2, 8):
        rows = filter_rows(rng)
        logits = (rng.standard_normal((len(rows), vocab)) * spread).astype(np.float32)
        logits[:, vocab // 2 : vocab // 2 + vocab // 50] = BANNED
        (tokens, _), (expected, _) = draw(logits, rows)
        for i in np.nonzero(tokens != expected)[0].tolist():
            moved = near(rows[i], rng, BOUND)
            assert tokens[i] in twin.sample(np.tile(logits[i], (len(moved), 1)), *columns(moved))[0]
            ties += 1
    assert ties <= 1


def test_filters_keep_equals_together() -> None:
    rng = np.random.default_rng(3)
    rows = filter_rows(rng, 0)
    logits = few_values(len(rows), 300, rng)
    (tokens, _), (expected, _) = draw(logits, rows)
    np.testing.assert_array_equal(tokens, expected)


def test_distribution() -> None:
    """Chi-square of 20000 draws for each filter against the probabilities of the twin."""
    rng = np.random.default_rng(5)
    for rows, logits, mass in distributions(rng, 20000):
        (tokens, _), _ = draw(np.tile(logits, (len(rows), 1)), rows, twins=False)
        chi_square(np.bincount(tokens, minlength=64), mass)


def gpu_draw(logits: Array, rows: Sequence[Row], gpu: Gpu = F16) -> tuple[Array, Array]:
    """The kernel's (tokens, logprobs) of logits under (temperature, ..., uniform) per row."""
    layout = layout_for(len(rows))
    step = words_of(sample_step(layout, rows))
    return launched(layout, logits, step, gpu)


def launched(layout: StepLayout, logits: Array, step: Array, gpu: Gpu = F16) -> tuple[Array, Array]:
    """The kernel's (tokens, logprobs) of logits and a step's words."""
    count, vocab = logits.shape
    stats_shape = (count, *Slices.of(gpu, vocab).stats_shape)
    outputs = [((count,), "int32"), ((count,), "float32"), (stats_shape, "uint32")]
    tokens, logprobs, _ = gpu_run(gpu_sample.sample, (vocab, layout), [logits, step], outputs, gpu)
    return tokens, logprobs


def near_ties(logits: Array, rows: Sequence[Row], gpu: Gpu = F16) -> int:
    """How often the kernel differs from the twin; fails where that is not by a near tie."""
    tokens, logprobs = gpu_draw(logits, rows, gpu)
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
    signs = np.array(list(itertools.product((-GPU_BOUND, 0, GPU_BOUND), repeat=3)))
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


@on_vulkan
@pytest.mark.feature("sampling", "vulkan", "runs")
@pytest.mark.parametrize(
    "vocab, gpu",
    [(1, F16), (2, F16), (17, SMALL), (100, F16), (1000, F16), (1000, SMALL), (1000, VULKAN)],
)
def test_gpu_agrees_with_the_twin(vocab: int, gpu: Gpu) -> None:
    rng = np.random.default_rng(vocab)
    ties = 0
    for spread in (0.01, 2, 20):
        logits = normal_rows(vocab, spread, rng, len(FILTERS))
        ties += near_ties(logits, with_uniforms(FILTERS, rng), gpu)
    assert ties <= 1


@on_vulkan
def test_gpu_ties_stay_together() -> None:
    """Logits of a few values only: every filter must keep or drop all equals alike."""
    rng = np.random.default_rng(0)
    for k in (1, 59, 60, 61, 299, 300):
        filters = [(1, k, p, m) for p in (1, 0.9, 1e-9) for m in (0, 0.3)]
        logits = few_values(len(filters), 300, rng)
        assert near_ties(logits, with_uniforms(filters, rng)) == 0
    logits = few_values(len(FILTERS), 300, rng)
    assert near_ties(logits, with_uniforms(FILTERS, rng)) == 0


@on_vulkan
def test_gpu_any_filters() -> None:
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


@on_vulkan
def test_gpu_extreme_logits() -> None:
    """Logits far apart, all equal, a single one, subnormal: only tokens with the largest mass may
    be sampled."""
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


@on_vulkan
@pytest.mark.parametrize(
    "filters", [(0, 0, 1, 0), (1, 0, 1, 0), (1, 5, 0.9, 0.1), (1e-30, 3, 0, 2), (1e-45, 0, 1, 0)]
)
def test_gpu_what_is_not_a_number(filters: Row) -> None:
    """NaN and infinities never crash, and never give a token out of range or a NaN one."""
    logits, first, last = not_numbers()
    for uniform in (0.0, 0.3, 0.999):
        tokens, _ = gpu_draw(logits, [(*filters, uniform)] * len(logits))
        assert (first <= tokens).all() and (tokens <= last).all()


@on_vulkan
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_gpu_the_ends_of_the_uniform(uniform: float) -> None:
    logits = np.zeros((3, 1000), np.float32)
    logits[1, :10] = logits[1, -10:] = -np.inf
    logits[2, 500] = 200  # the others' mass is less than a float can hold
    tokens, _ = gpu_draw(logits, [(1, 0, 1, 0, uniform)] * 3)
    assert tokens.tolist() == ([0, 10, 500] if uniform == 0 else [999, 989, 500])


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL], ids=str)
def test_gpu_greedy_takes_the_first_of_equals(gpu: Gpu) -> None:
    logits = np.zeros((5, 1000), np.float32)
    wanted = [(3, 150), (17, 18), (999, 5), (0, 899), (256, 257)]
    for row, where in enumerate(wanted):
        logits[row, list(where)] = 5
    tokens, logprobs = gpu_draw(logits, [(0, 0, 1, 0, 0.9)] * 5, gpu)
    assert tokens.tolist() == [min(where) for where in wanted]
    np.testing.assert_allclose(logprobs, 5 - np.log(998 + 2 * np.exp(5)), rtol=1e-6)


@on_vulkan
def test_gpu_no_rows() -> None:
    assert [o.size for o in gpu_draw(np.zeros((0, 100), np.float32), [])] == [0, 0]


@on_vulkan
def test_gpu_rows_beyond_the_step_s_are_left_alone() -> None:
    layout, logits = LAYOUTS[0], normal_rows(100, 1, np.random.default_rng(0), 5)
    step = words_of(sample_step(layout, [(0.0, 0, 1.0, 0.0, 0.5)] * 2))
    tokens, logprobs = launched(layout, logits, step)
    assert tokens[:2].tolist() == logits[:2].argmax(axis=1).tolist()
    assert (tokens[2:] == 77).all() and (logprobs[2:] == 77).all()


@on_vulkan
def test_gpu_a_given_token_is_reported_and_not_sampled() -> None:
    rows = [(0.0, 0, 1.0, 0.0, 0.5), (1.0, 3, 0.9, 0.0, 0.2)] * 2
    logits = normal_rows(100, 3, np.random.default_rng(4), 4)
    layout, given = layout_for(4), [-1, 99, 7, -1]
    step = words_of(sample_step(layout, rows, given))
    tokens, logprobs = launched(layout, logits, step)
    expected, expected_logprobs = twin.sample(logits, *columns(rows), given=np.array(given))
    assert tokens.tolist() == expected.tolist() and tokens[1:3].tolist() == [99, 7]
    np.testing.assert_allclose(logprobs, expected_logprobs, rtol=1e-5, atol=1e-5)


@on_vulkan
def test_gpu_parameters_lie_where_the_layout_says() -> None:
    rng = np.random.default_rng(2)
    rows, logits = with_uniforms(FILTERS[:40], rng), normal_rows(100, 1, rng, 40)
    expected = gpu_draw(logits, rows)[0]
    for layout in LAYOUTS[1:]:
        step = words_of(sample_step(layout, rows))
        tokens, _ = launched(layout, logits, step)
        np.testing.assert_array_equal(tokens, expected)


@on_vulkan
def test_gpu_results_repeat_to_the_bit() -> None:
    rng = np.random.default_rng(3)
    logits, rows = normal_rows(1000, 2, rng, len(FILTERS)), with_uniforms(FILTERS, rng)
    tokens, logprobs = gpu_draw(logits, rows)
    alone = [gpu_draw(logits[i : i + 1], rows[i : i + 1]) for i in range(0, len(rows), 16)]
    assert [int(t[0]) for t, _ in alone] == tokens[::16].tolist()
    assert [p.tobytes() for _, p in alone] == [p.tobytes() for p in logprobs[::16]]
    again, logprobs_again = gpu_draw(logits, rows)
    assert again.tobytes() == tokens.tobytes() and logprobs_again.tobytes() == logprobs.tobytes()


@on_vulkan
@pytest.mark.feature("samplers", "vulkan", "runs")
@pytest.mark.parametrize("vocab, gpu", [(1, F16), (100, SMALL), (1000, F16)])
def test_gpu_every_filter_agrees_with_the_twin(vocab: int, gpu: Gpu) -> None:
    """Check a kernel's tokens: where one differs, the twin gives it with parameters moved by
    FILTER_BOUND."""
    rng, ties = np.random.default_rng(vocab), 0
    for spread in (0.5, 2, 8):
        rows = filter_rows(rng)
        logits = normal_rows(vocab, spread, rng, len(rows))
        logits[:, vocab // 2 : vocab // 2 + vocab // 50] = BANNED
        tokens, _ = gpu_draw(logits, rows, gpu)
        expected, _ = twin.sample(logits, *columns(rows))
        for i in np.nonzero(tokens != expected)[0].tolist():
            moved = near(rows[i], rng, FILTER_BOUND)
            tried = twin.sample(np.tile(logits[i], (len(moved), 1)), *columns(moved))[0]
            assert tokens[i] in tried, (rows[i], tokens[i], expected[i])
            ties += 1
    assert ties <= 1


@on_vulkan
def test_gpu_filters_keep_equals_together() -> None:
    rng = np.random.default_rng(3)
    rows = filter_rows(rng, 0)
    logits = few_values(len(rows), 300, rng)
    expected, _ = twin.sample(logits, *columns(rows))
    np.testing.assert_array_equal(gpu_draw(logits, rows)[0], expected)


@on_vulkan
def test_gpu_barriers_are_under_no_condition() -> None:
    """Browsers refuse barriers in control flow that they cannot prove uniform; lavapipe does not.
    Loops are counted by the stage and the row's parameters, which are read-only: uniform. So is the
    one condition: whether the workgroup's row is one of the step's, whose count is read-only."""
    text = source("webgpu", gpu_sample.sample(F16, 128256, LAYOUTS[0]))
    assert barriers(text, [LAYOUTS[0].header.at("rows")]) > 5


@on_vulkan
def test_gpu_metal_takes_subgroups() -> None:
    gpu = Gpu(subgroup=32, shared_bytes=32768)
    text = source("metal", gpu_sample.sample(gpu, 128256, LAYOUTS[0]), subgroup=True)
    assert "simd_shuffle_down" in text and "double" not in text and "half" not in text
