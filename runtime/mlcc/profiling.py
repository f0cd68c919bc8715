"""Where a model's time goes: one prefill step and some decode steps, kernel by kernel.

Makes the batches and adds up what the device's kernel log says; prints nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mlcc.device.kernel_log import KernelLog, KernelUse, copy_bandwidth
from mlcc.device.native import NativeExecutor
from mlcc.engine.batch import Batch
from mlcc.errors import CapacityError

STEPS = 8
"""Decode steps that are measured."""


@dataclass(frozen=True)
class Phase:
    """One kind of step."""

    name: str
    steps: int
    tokens: int
    """New tokens per step."""
    step_ms: float
    """Wall time of an unwatched step, with its upload and its tokens read back."""
    kernels: tuple[KernelUse, ...]

    @property
    def kernel_ms(self) -> float:
        """Time of all kernels, per step."""
        return sum(use.nanoseconds for use in self.kernels) / 1e6 / self.steps


@dataclass(frozen=True)
class Profile:
    """What `mlcc profile` shows."""

    clock: str
    copy_gb_s: float
    phases: tuple[Phase, ...]


def profile(
    executor: NativeExecutor, *, context: int, batch: int, progress: Callable[[str], None]
) -> Profile:
    """Prefill `context` tokens in one step, then decode `batch` sequences of that length.

    Raises CapacityError if they do not fit what the model was compiled for.
    """
    capacity = executor.capacity
    longest = min(capacity.max_step_tokens, capacity.context - STEPS)
    if not 1 <= context <= longest:
        raise CapacityError(f"--context {context} is not within 1 .. {longest} for a profile")
    pages = -(-(context + STEPS) // capacity.page_size)
    if not 1 <= batch <= min(capacity.max_batch, capacity.num_pages // pages):
        raise CapacityError(
            f"--batch {batch} sequences of {context} tokens do not fit; the model was compiled for "
            f"{capacity.max_batch} and has {capacity.num_pages} pages; use less of one of them"
        )
    maker = _Batches(capacity.page_size, pages, capacity.vocab_size)
    log = KernelLog(executor)
    progress("prefill")
    log.used_pages = pages
    prefill = _measure(executor, log, "prefill", [maker.prefill(context)] * 3)
    progress("decode")
    log.used_pages = pages * batch
    steps = [maker.decode(context + i, batch) for i in range(STEPS)]
    decode = _measure(executor, log, "decode", steps)
    progress("bandwidth")
    return Profile(log.clock, copy_bandwidth(executor) / 1e9, (prefill, decode))


def _measure(executor: NativeExecutor, log: KernelLog, name: str, batches: list[Batch]) -> Phase:
    """Once to warm up, once unwatched for the clock, once watched."""
    _run(executor, batches)
    began = time.perf_counter()
    _run(executor, batches)
    elapsed = time.perf_counter() - began
    log.start()
    _run(executor, batches)
    kernels = tuple(log.stop())
    count = len(batches)
    return Phase(name, count, batches[0].num_tokens, 1e3 * elapsed / count, kernels)


def _run(executor: NativeExecutor, batches: list[Batch]) -> None:
    for batch in batches:
        executor.collect(executor.submit(batch))


@dataclass(frozen=True)
class _Batches:
    """Batches over sequences that own `pages` pages each."""

    page_size: int
    pages: int
    vocab: int

    def prefill(self, count: int) -> Batch:
        """One sequence from its beginning."""
        return self._batch([(0, 0, count)])

    def decode(self, position: int, sequences: int) -> Batch:
        """One token of each sequence."""
        return self._batch([(s, position, 1) for s in range(sequences)])

    def _batch(self, rows: list[tuple[int, int, int]]) -> Batch:
        """rows: (sequence, first position, tokens)."""
        batch = Batch()
        for sequence, start, count in rows:
            first, stop = sequence * self.pages, start + count
            positions = range(start, stop)
            batch.token_ids.extend((7 * p + sequence) % self.vocab for p in positions)
            batch.positions.extend(positions)
            batch.token_slots.extend(first * self.page_size + p for p in positions)
            batch.page_indices.extend(range(first, first + -(-stop // self.page_size)))
            batch.qo_indptr.append(len(batch.token_ids))
            batch.page_indptr.append(len(batch.page_indices))
            batch.last_page_len.append((stop - 1) % self.page_size + 1)
            batch.logit_rows.append(len(batch.token_ids) - 1)
            batch.temperature.append(0.0)
            batch.top_k.append(0)
            batch.top_p.append(1.0)
            batch.min_p.append(0.0)
            batch.uniforms.append(0.5)
        return batch
