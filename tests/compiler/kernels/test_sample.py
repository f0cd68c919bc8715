"""Sampling against the twin token by token, at the extremes, and as a distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import sampling as twin
from mlcc.engine.sampling.logits_processor import BANNED
from mlcc_compiler.kernels.cpu.sampling import sample
from tests.compiler.kernels.cpu_kernels import BEST, CPUS, Cpu, normal, run
from tests.compiler.kernels.sample_cases import (
    FILTERS,
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

BOUND = 1e-5


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


def test_a_given_token_is_told_and_not_drawn() -> None:
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
