"""The GPU's paged attention against the twin: ragged mixed batches on poisoned pages.

Bounds are absolute, on outputs of order one: 1e-5 for either page type, as the twin reads the same
pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_cases import MIXED, Case, alone, batch
from gpu_kernels import F16, GPUS, run

from mlcc.device import reference_ops as twin
from mlcc_compiler.kernels.gpu import attention
from mlcc_compiler.kernels.gpu.attention_decode import attend_ranges, range_items
from mlcc_compiler.kernels.gpu.device import Gpu


def attend(case: Case, inputs: list[Any], gpu: Gpu = F16) -> Any:
    """Both kernels, one after the other."""
    q, *_, indices, last = inputs
    items = int(range_items(len(indices), len(last), case.page))
    scratch = [((items, case.heads, n), "float32") for n in (case.dim, 2)]
    parts = run(attend_ranges, case.arguments, inputs, scratch, gpu)
    out = [(q.shape, "float32")]
    return run(attention.attend, case.arguments, [*inputs, *parts], out, gpu)[0]


def check(case: Case, sequences: Any, gpu: Gpu = F16, seed: int = 0, padding: int = 2) -> None:
    inputs = batch(case, sequences, seed, padding)
    expected = twin.paged_attention(*inputs, case.scale, case.window, case.softcap)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(attend(case, inputs, gpu), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_mixed_batch(gpu: Gpu) -> None:
    check(Case(dtype="float16" if gpu.f16 else "float32"), MIXED, gpu)


@pytest.mark.parametrize("heads, kv_heads", [(2, 2), (8, 2), (14, 2), (16, 1)])
def test_groups(heads: int, kv_heads: int) -> None:
    check(Case(heads=heads, kv_heads=kv_heads, dim=32, dtype="float16"), MIXED)


@pytest.mark.parametrize("dim", [8, 40, 80, 96, 128, 256])
def test_head_dims(dim: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=dim), MIXED)


@pytest.mark.parametrize("page", [1, 4, 48, 128])
def test_page_sizes(page: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=32, page=page), MIXED)


@pytest.mark.parametrize("window", [1, 20, 100, 1000])
def test_windows_leave_freed_pages_alone(window: int) -> None:
    check(Case(heads=3, window=window), (*MIXED, (1, 1500), (30, 400)))


def test_softcap() -> None:
    check(Case(softcap=5.0, dtype="float16"), MIXED)
    check(Case(softcap=5.0, window=33), MIXED)


def test_lengths_round_every_boundary() -> None:
    """Of pages (16), blocks (32), ranges (128)."""
    lengths = (1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 257, 1024, 4097)
    case = Case(heads=4, kv_heads=2)
    check(case, [(1, n) for n in lengths], padding=0)
    tokens = (1, 2, 20, 31, 32, 33, 63, 64, 65)
    check(case, [(n, n + more) for n in tokens for more in (0, 100)])


def test_random_batches() -> None:
    rng = np.random.default_rng(3)
    for seed in range(20):
        count = int(rng.integers(1, 9))
        queries = rng.integers(0, 50, count) * (rng.random(count) < 0.5) + (rng.random(count) < 0.8)
        check(Case(), [(int(n), int(n + rng.integers(0, 200))) for n in queries], seed=seed)


def test_pure_decode_step_may_be_padded() -> None:
    """n = b: rows of sequences without a token get zeros, and the prefill does not run."""
    check(Case(), [(1, 40), (1, 300), (0, 0), (0, 16)], padding=2)


def test_no_sequences() -> None:
    inputs = batch(Case(), (), padding=3)
    assert (attend(Case(), inputs) == 0).all()
    assert attend(Case(), batch(Case(), ())).size == 0


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Bit for bit: how a sequence is cut into ranges and tiles follows from its own lengths."""
    for case in (Case(), Case(window=90)):
        sequences = ((1, 500), (30, 200), (1, 33), (100, 100))
        inputs = batch(case, sequences)
        together = attend(case, inputs)
        qo = inputs[2]
        for s in range(len(sequences)):
            by_itself = attend(case, alone(inputs, s))
            np.testing.assert_array_equal(by_itself, together[qo[s] : qo[s + 1]])


def test_large_scores_do_not_overflow() -> None:
    inputs = batch(Case(), ((1, 300), (70, 300)))
    inputs[0] *= 1000
    expected = twin.paged_attention(*inputs, Case().scale)
    np.testing.assert_allclose(attend(Case(), inputs), expected, rtol=0, atol=1e-2)
