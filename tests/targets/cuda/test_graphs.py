"""Decode steps as CUDA graphs: buckets of sizes; a replay never uses another step's lengths.

On the emulated device, which captures and replays launches as CUDA does, and refuses allocation
during a capture. Replayed steps are compared with the same steps run kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mlcc.device.tvm.cuda_graphs import Bucket, bucket_of
from mlcc.engine import SamplingParams
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, PageList, int32
from mlcc.engine.batch.tables import CacheGroup
from mlcc.model.model import Model
from tests.e2e.demo.equality import answer_tokens
from tests.targets.cuda import emulation

PAGE = 16
PAGED, WINDOW = CacheGroup("paged", PAGE), CacheGroup("window", PAGE, 20)
needs_device = pytest.mark.usefixtures("emulated")


def capacity(*groups: CacheGroup, most: int = 6) -> Capacity:
    pools, tokens = [64] * len(groups), max(32, most)
    return Capacity.of(
        groups, pools, vocab_size=1280, context=256, max_batch=most, max_step_tokens=tokens
    )


def step(
    capacity: Capacity,
    chunks: Sequence[Sequence[int]],
    lengths: Sequence[int],
    first_pages: Sequence[int] = (),
    sampled: int | None = None,
    draws: Sequence[float] = (),
) -> Batch:
    """The last tokens of sequences of these lengths, each with its own pages, in every group; the
    first `sampled` of them have a row of logits. draws: of each sequence, at a temperature of its
    own; without them rows are greedy."""
    lists = []
    for s, length in enumerate(lengths):
        first, lists_of = first_pages[s] if first_pages else 0, []
        for group in capacity.groups:
            slid = max(0, length - (group.window or length)) // PAGE
            ids = range(first + slid, first + -(-length // PAGE))
            lists_of.append(PageList(int32(ids), slid))
        lists.append(lists_of)
    writer = BatchWriter(capacity.layout)
    for s, (tokens, length) in enumerate(zip(chunks, lengths, strict=True)):
        first = writer.sequence(tokens, length - len(tokens), lists[s])
        if sampled is None or s < sampled:
            drawn = SamplingParams(temperature=1 + s / 4, top_k=40 * (s % 2), top_p=0.9)
            row = (drawn, draws[s]) if draws else ()
            writer.row(first + len(tokens) - 1, *row)
    return writer.finish()


def test_buckets() -> None:
    here = capacity(PAGED)

    def of(count: int, length: int) -> Bucket | None:
        return bucket_of(step(here, [[5]] * count, [length] * count), here)

    assert of(1, 7) == (1, 1, 1, 64) and of(3, 7) == (3, 3, 3, 64)
    assert of(4, 256) == (4, 4, 4, 64) and of(5, 256) == (5, 5, 5, 96)
    assert of(0, 1) is None
    assert bucket_of(step(here, [[5, 6]], [7]), here) is None
    assert bucket_of(step(here, [[5], [6]], [7, 8], sampled=1), here) is None
    here = capacity(PAGED, most=400)
    assert of(8, 7) == (8, 8, 8, 64) and of(9, 7) == (16, 16, 16, 64)
    assert of(129, 7) == (256, 256, 256, 256) and of(257, 7) == (384, 384, 384, 512)
    assert of(385, 7) == (400, 400, 400, 512)  # never more than the library was compiled for


def test_every_group_has_its_size_in_a_bucket() -> None:
    """Lengths of at most the group's longest lists: those of a window stay short."""
    here = capacity(PAGED, WINDOW)
    batch = step(here, [[5]] * 5, [256] * 5)
    assert batch.sizes == (5, 5, 5, 80, 10)
    assert bucket_of(batch, here) == (5, 5, 5, 96, 30)


@needs_device
def test_no_replay_is_stale(demo_models: dict[str, Model]) -> None:
    """Lengths, pages, tokens, draws and the number of sequences change from step to step."""
    executor: Any = demo_models["cuda"].executor
    device, rng = emulation.device(), np.random.default_rng(0)
    for pages in executor._caches:
        pages.copyfrom(rng.standard_normal(pages.shape).astype(pages.dtype))
    sizes: set[Bucket] = set()
    seen, drawn = list[Any](), 0
    for turn in range(7):
        count = int(rng.integers(1, 5))
        lengths = rng.integers(1, 100, count).tolist()
        tokens = [[t] for t in rng.integers(0, 1000, count).tolist()]
        pages = (rng.permutation(4)[:count] * 16).tolist()
        draws = rng.random(count).tolist()
        batch = step(executor.capacity, tokens, lengths, pages, draws=draws)
        staged = executor._stage(batch)
        found = executor._run_forward(batch, staged)  # also appends, so all read the same pages
        sampled, expected = executor._function("sample")(found, staged), found.numpy()
        bucket = bucket_of(batch, executor.capacity)
        assert bucket is not None
        before = device.emulated_graph_launches()
        logits = executor._run_decode(batch, staged).numpy()
        result = executor.collect(executor.submit(batch))
        replays = device.emulated_graph_launches() - before
        assert replays == 2 or bucket not in sizes, turn  # the first captures, if no test did yet
        sizes.add(bucket)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)
        assert list(result.tokens) == sampled[0].numpy().tolist()
        np.testing.assert_allclose(result.logprobs, sampled[1].numpy(), rtol=0, atol=1e-3)
        drawn += int((sampled[0].numpy() != expected.argmax(axis=1)).sum())
        seen.append(logits[0])
    assert len(sizes) == 4 and len({row.tobytes() for row in seen}) == len(seen)
    assert drawn > 2


@needs_device
def test_answers_with_graphs_equal_those_without(demo_models: dict[str, Model]) -> None:
    """Prompts of many lengths come and go, so that prefill steps run between replays; one is
    greedy, one has penalties, whose steps sample behind their graph."""
    rng = np.random.default_rng(1)
    prompts = [rng.integers(5, 1000, n).tolist() for n in (40, 3, 9)]
    sampling = [
        SamplingParams(temperature=0.0, max_tokens=5),
        SamplingParams(temperature=1.5, seed=7, max_tokens=5),
        SamplingParams(temperature=1.5, seed=8, max_tokens=3, presence_penalty=1.0),
    ]
    device = emulation.device()
    before = device.emulated_graph_launches()
    answers = answer_tokens(demo_models["cuda"], prompts, sampling)
    assert device.emulated_graph_launches() > before
    before = device.emulated_graph_launches()
    assert answer_tokens(demo_models["eager"], prompts, sampling) == answers
    assert device.emulated_graph_launches() == before


@needs_device
def test_launches_of_a_step(demo_models: dict[str, Model]) -> None:
    """Eight a layer, and nine. A prompt has two more in attention: its own, and the rounding of
    what it wrote."""
    executor: Any = demo_models["eager"].executor
    device, layers = emulation.device(), 6

    def count(batch: Batch) -> int:
        before = device.emulated_launches()
        executor.logits(batch)
        return int(device.emulated_launches() - before)

    assert count(step(executor.capacity, [[5], [6], [7]], [9, 40, 3])) == 8 * layers + 9
    assert count(step(executor.capacity, [list(range(20))], [20])) == 10 * layers + 9
