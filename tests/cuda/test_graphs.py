"""Decode steps as CUDA graphs: buckets, padding, and that no replay is of another step's lengths.

On the emulated device, which captures and replays launches as CUDA does, and refuses allocation
during a capture. Replayed steps are compared with the same steps run kernel by kernel.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from demo.equality import greedy_tokens

from mlcc.device.cuda_graphs import Bucket, bucket_of, padded
from mlcc.engine.batch import Batch, Capacity
from mlcc.model import Model

from . import emulation

CAPACITY = Capacity(1280, 256, 16, 64, max_batch=6, max_step_tokens=32)
needs_device = pytest.mark.usefixtures("emulated")


def decode_batch(lengths: Sequence[int], pages_from: Sequence[int], tokens: Any = None) -> Batch:
    """A token for each sequence of these lengths (this token included), each with its own pages."""
    batch, count = Batch(), len(lengths)
    for s, (length, first) in enumerate(zip(lengths, pages_from, strict=True)):
        pages = range(first, first + -(-length // 16))
        batch.token_ids.append(5 + s if tokens is None else tokens[s])
        batch.positions.append(length - 1)
        batch.token_slots.append(pages[-1] * 16 + (length - 1) % 16)
        batch.page_indices.extend(pages)
        batch.qo_indptr.append(s + 1)
        batch.page_indptr.append(len(batch.page_indices))
        batch.last_page_len.append((length - 1) % 16 + 1)
        batch.logit_rows.append(s)
    for name, value in (("temperature", 0.0), ("top_p", 1.0), ("min_p", 0.0), ("uniforms", 0.0)):
        setattr(batch, name, array("f", [value] * count))
    batch.top_k = array("i", [0] * count)
    return batch


def test_buckets() -> None:
    def of(count: int, length: int) -> Bucket | None:
        return bucket_of(decode_batch([length] * count, range(0, 1000 * count, 1000)), CAPACITY)

    assert of(1, 7) == Bucket(1, 64) and of(3, 7) == Bucket(4, 64)
    assert of(5, 7) == Bucket(6, 64)  # never more than the library was compiled for
    assert of(4, 256) == Bucket(4, 64) and of(5, 256) == Bucket(6, 96)
    assert of(0, 1) is None and of(6, 257) is None
    prefill = decode_batch([7], [0])
    prefill.token_ids.append(1)
    assert bucket_of(prefill, CAPACITY) is None
    unsampled = decode_batch([7, 8], [0, 1])
    del unsampled.logit_rows[1]
    assert bucket_of(unsampled, CAPACITY) is None


def test_padding_computes_nothing() -> None:
    batch = decode_batch([17, 3], [4, 9])
    found = [list(values) for values in padded(batch, Bucket(4, 5), 16)]
    assert found == [
        [5, 6, 0, 0],
        [16, 2, 0, 0],
        [0, 1, 2, 3],
        [80, 146, -1, -1],
        [0, 1, 2, 2, 2],
        [0, 2, 3, 3, 3],
        [4, 5, 9, 0, 0],
        [1, 3, 16, 16],
    ]
    assert len(batch.token_ids) == 2  # the batch itself is as it was


@needs_device
def test_no_replay_is_stale(demo_models: dict[str, Model]) -> None:
    """Lengths, pages, tokens and the number of sequences change from step to step."""
    executor: Any = demo_models["cuda"].executor
    graphs, fixed = executor._graphs, (executor._last_sampled, executor._kv, executor._weights)
    assert graphs is not None
    device, rng = emulation.device(), np.random.default_rng(0)
    for pages in executor._kv:
        pages.copyfrom(rng.standard_normal(pages.shape).astype(pages.dtype))
    sizes: set[Bucket] = set()
    seen: list[Any] = []
    for step in range(7):
        count = int(rng.integers(1, 5))
        lengths = rng.integers(1, 100, count).tolist()
        tokens = rng.integers(0, 1000, count).tolist()
        batch = decode_batch(lengths, rng.permutation(4)[:count] * 16, tokens)
        expected = executor.logits(batch)  # also appends, so both read the same pages
        bucket = graphs.bucket_of(batch)
        before = device.emulated_graph_launches()
        logits = graphs.run(batch, bucket, *fixed).numpy()
        replays = device.emulated_graph_launches() - before
        assert replays == 1 or bucket not in sizes, step  # the first captures, if no test did yet
        sizes.add(bucket)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)
        seen.append(logits[0])
    assert len(sizes) == 3 and len({row.tobytes() for row in seen}) == len(seen)


@needs_device
def test_answers_with_graphs_equal_those_without(demo_models: dict[str, Model]) -> None:
    """Prompts of many lengths come and go, so that prefill steps run between replays."""
    rng = np.random.default_rng(1)
    prompts = [rng.integers(5, 1000, n).tolist() for n in (40, 3, 9)]
    device = emulation.device()
    before = device.emulated_graph_launches()
    answers = greedy_tokens(demo_models["cuda"], prompts, 5)
    assert device.emulated_graph_launches() > before
    before = device.emulated_graph_launches()
    assert greedy_tokens(demo_models["eager"], prompts, 5) == answers
    assert device.emulated_graph_launches() == before
