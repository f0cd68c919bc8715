"""Penalties, biases, masks and top logprobs against their twins, and those against the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference.logits import adjust as twin_adjust
from mlcc.device.reference.logits import top_logprobs as twin
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Penalties, mask_of
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc_compiler.kernels.cpu.sampling import adjust, top_logprobs
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling import adjust as gpu_adjust
from mlcc_compiler.kernels.gpu.sampling import top_logprobs as gpu_top_logprobs
from mlcc_compiler.kernels.gpu.sampling.partial import Slices
from tests.compiler.kernels.cases.adjust import (
    LAST,
    ROWS,
    TOP_COUNTS,
    adjusting,
    everything,
    expected,
    hard_rows,
    sampled,
    top_step,
    words_in,
)
from tests.compiler.kernels.cases.cpu_kernels import BEST, CPUS, Cpu, call, normal, run
from tests.compiler.kernels.cases.gpu_kernels import F16, SMALL, barriers, on_vulkan, source
from tests.compiler.kernels.cases.gpu_kernels import call as gpu_call
from tests.compiler.kernels.cases.gpu_kernels import normal as gpu_normal
from tests.compiler.kernels.cases.gpu_kernels import run as gpu_run
from tests.compiler.kernels.cases.step import LAYOUTS

Array = Any


def adjusted(logits: Array, adjustments: Any, cpu: Cpu = BEST) -> Array:
    vocab = logits.shape[1]
    inputs = [logits, words_in(adjustments), LAST]
    return call(adjust.adjust, (AdjustLayout(ROWS, vocab),), inputs, cpu)[0]


def test_the_twin_computes_the_formulas() -> None:
    """By hand: repetition, then frequency and presence, then bias, then mask."""
    writer = adjusting(100)
    mask = writer.mask(mask_of(range(1, 100), 100))
    history = {0: 1, 1: 0, 2: 3, 3: 0}
    penalties = Penalties(2.0, 0.25, 1.0)
    writer.row(0, penalties, history=history, in_flight=0, bias={2: 10.0}, mask=mask)
    logits = np.ones((1, 100), np.float32)
    logits[0, 2] = -1
    found = expected(logits, writer.finish())[0]
    assert found[0] == -np.inf
    assert found[1] == 0.5  # of the prompt alone
    assert found[2] == -1 * 2 - 3 * 0.25 - 1 + 10
    assert found[3] == 0.5
    assert found[LAST[0]] == 0.5 - 0.25 - 1  # in flight, once
    assert (np.delete(found, [0, 1, 2, 3, LAST[0]]) == 1).all()


@pytest.mark.parametrize("vocab, cpu", [(100, BEST), *((1001, cpu) for cpu in CPUS)])
def test_agrees_with_the_twin(vocab: int, cpu: Cpu) -> None:
    """Float32 in the same order; a compiler may join a product with a sum, so not to the bit."""
    logits, adjustments = normal(vocab, ROWS, vocab, scale=3), everything(vocab)
    want = expected(logits, adjustments)
    np.testing.assert_allclose(adjusted(logits, adjustments, cpu), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(want[[1, 7]], logits[[1, 7]])
    assert np.isinf(want).sum() == 2 * (vocab - vocab // 2) + vocab - 1


def test_nothing_to_adjust() -> None:
    logits = normal(0, 3, 100)
    np.testing.assert_array_equal(adjusted(logits, adjusting(100).finish()), logits)


@pytest.mark.parametrize("vocab", [5, 100, 1001])
def test_top_logprobs_agree_with_the_twin(vocab: int) -> None:
    logits, rows = hard_rows(vocab), len(TOP_COUNTS)
    outputs = [((rows, MOST_TOP_LOGPROBS), dtype) for dtype in ("int32", "float32")]
    inputs = [logits, top_step(LAYOUTS[0]), *sampled(logits)]
    ids, logprobs = run(top_logprobs.top_logprobs, (vocab, LAYOUTS[0]), inputs, outputs)
    want_ids, want = twin(logits, np.array(TOP_COUNTS), MOST_TOP_LOGPROBS)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(logprobs, want, rtol=1e-5, atol=1e-5)
    assert (ids >= 0).sum(axis=1).tolist() == [0, 1, 5, min(20, vocab), 1]


@on_vulkan
@pytest.mark.parametrize("vocab, gpu", [(100, SMALL), (1001, F16)])
def test_gpu_agrees_with_the_twin(vocab: int, gpu: Gpu) -> None:
    """WGSL allows a division 2.5 units in the last place."""
    logits, adjustments = gpu_normal(vocab, ROWS, vocab, scale=3), everything(vocab)
    want = expected(logits, adjustments)
    inputs = [logits, words_in(adjustments), LAST]
    found = gpu_call(gpu_adjust.adjust, (AdjustLayout(ROWS, vocab),), inputs, gpu)[0]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


def timed(vocab: int, first: int) -> tuple[Array, Any]:
    """Rows whose timestamps, from `first` on, outweigh the text or do not: with a mask for all but
    the last, and timestamps that no mask allows."""
    logits = normal(vocab, ROWS, vocab)
    logits[:, first:] -= 2
    logits[1, first:] += 8
    logits[2, :first] = -50
    writer = adjusting(vocab)
    every, text = (writer.mask(mask_of(range(end), vocab)) for end in (vocab, first))
    for row, mask in enumerate((every, every, every, text, every, 0)):
        writer.row(row, bias={first - 1: 4.0} if row == 4 else {}, mask=mask)
    return logits, writer.finish()


@pytest.mark.parametrize("cpu", CPUS, ids=lambda cpu: cpu.name)
@pytest.mark.parametrize(("vocab", "first"), [(100, 61), (1001, 700)])
def test_timestamps_together_outweigh_text(vocab: int, first: int, cpu: Cpu) -> None:
    logits, adjustments = timed(vocab, first)
    want = twin_adjust(logits.copy(), adjustments, LAST, first)
    none = np.isneginf(want[:, 0])
    assert none[1] and none[2] and not none[3] and not none[5]
    layout, inputs = AdjustLayout(ROWS, vocab, first), [logits, words_in(adjustments), LAST]
    np.testing.assert_array_equal(call(adjust.adjust, (layout,), inputs, cpu)[0], want)


@on_vulkan
@pytest.mark.parametrize("vocab, first, gpu", [(100, 61, SMALL), (1001, 700, F16)])
def test_gpu_timestamps_together_outweigh_text(vocab: int, first: int, gpu: Gpu) -> None:
    logits, adjustments = timed(vocab, first)
    want = twin_adjust(logits.copy(), adjustments, LAST, first)
    layout, inputs = AdjustLayout(ROWS, vocab, first), [logits, words_in(adjustments), LAST]
    np.testing.assert_array_equal(gpu_call(gpu_adjust.adjust, (layout,), inputs, gpu)[0], want)


@on_vulkan
@pytest.mark.parametrize("vocab, gpu", [(5, F16), (1001, SMALL), (40000, F16)])
def test_gpu_top_logprobs_agree_with_the_twin(vocab: int, gpu: Gpu) -> None:
    logits, rows = hard_rows(vocab), len(TOP_COUNTS)
    outputs = [((rows, MOST_TOP_LOGPROBS), dtype) for dtype in ("int32", "float32")]
    outputs.append(((rows, *Slices.of(gpu, vocab).stats_shape), "uint32"))
    inputs = [logits, top_step(LAYOUTS[0]), *sampled(logits)]
    ids, logprobs, _ = gpu_run(
        gpu_top_logprobs.top_logprobs, (vocab, LAYOUTS[0]), inputs, outputs, gpu
    )
    want_ids, want = twin(logits, np.array(TOP_COUNTS), MOST_TOP_LOGPROBS)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(logprobs, want, rtol=1e-5, atol=1e-5)


@on_vulkan
def test_gpu_barriers_are_under_no_condition() -> None:
    """Barriers are uniform as in `sample`: loop counts depend on the step's read-only words."""
    text = source("webgpu", gpu_top_logprobs.top_logprobs(F16, 1000, LAYOUTS[0]))
    assert barriers(text, [LAYOUTS[0].header.at("rows")]) > 5
    text = source("webgpu", gpu_adjust.adjust(F16, AdjustLayout(ROWS, 1000)))
    assert barriers(text.split("fn kernel_kernel_1")[0], [0]) > 5
