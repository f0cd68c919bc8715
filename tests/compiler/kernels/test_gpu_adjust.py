"""Penalties, biases, masks and top logprobs on the GPU against their twins."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.device.reference.logits import top_logprobs as twin
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling import adjust, top_logprobs
from mlcc_compiler.kernels.gpu.sampling.partial import Slices
from tests.compiler.kernels.adjust_cases import (
    LAST,
    ROWS,
    TOP_COUNTS,
    everything,
    expected,
    hard_rows,
    sampled,
    top_step,
    words_in,
)
from tests.compiler.kernels.gpu_kernels import F16, SMALL, barriers, call, normal, run, source
from tests.compiler.kernels.step_cases import LAYOUTS

pytestmark = pytest.mark.usefixtures("vulkan")


@pytest.mark.parametrize("vocab, gpu", [(100, SMALL), (1001, F16)])
def test_agrees_with_the_twin(vocab: int, gpu: Gpu) -> None:
    """WGSL allows a division 2.5 units in the last place."""
    logits, adjustments = normal(vocab, ROWS, vocab, scale=3), everything(vocab)
    want = expected(logits, adjustments)
    inputs = [logits, words_in(adjustments), LAST]
    found = call(adjust.adjust, (AdjustLayout(ROWS, vocab),), inputs, gpu)[0]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("vocab, gpu", [(5, F16), (1001, SMALL), (40000, F16)])
def test_top_logprobs_agree_with_the_twin(vocab: int, gpu: Gpu) -> None:
    logits, rows = hard_rows(vocab), len(TOP_COUNTS)
    outputs = [((rows, MOST_TOP_LOGPROBS), dtype) for dtype in ("int32", "float32")]
    outputs.append(((rows, *Slices.of(gpu, vocab).stats_shape), "uint32"))
    inputs = [logits, top_step(LAYOUTS[0]), *sampled(logits)]
    ids, logprobs, _ = run(top_logprobs.top_logprobs, (vocab, LAYOUTS[0]), inputs, outputs, gpu)
    want_ids, want = twin(logits, np.array(TOP_COUNTS), MOST_TOP_LOGPROBS)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(logprobs, want, rtol=1e-5, atol=1e-5)


def test_barriers_are_under_no_condition() -> None:
    """As those of `sample`: loops are counted by what a row wants, a word that is only read."""
    text = source("webgpu", top_logprobs.top_logprobs(F16, 1000, LAYOUTS[0]))
    assert barriers(text, [LAYOUTS[0].header.at("rows")]) > 5
    text = source("webgpu", adjust.adjust(F16, AdjustLayout(ROWS, 1000)))
    assert barriers(text.split("fn kernel_kernel_1")[0], [0]) > 5
