"""Profiles a model: one prefill step and some decode steps, kernel by kernel.

Makes the batches and sums the device's kernel log; prints nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mlcc.device.kernel_log import KernelLog, KernelUse
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.batch.executor import Executor
from mlcc.engine.kv_cache.cache_manager import most_sequences
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import CapacityError, UnsupportedError
from mlcc.util.extras import is_here

STEPS = 8
"""Number of measured decode steps."""


@dataclass(frozen=True)
class Phase:
    """Prefill or decode."""

    name: str
    steps: int
    tokens: int
    """New tokens per step."""
    step_ms: float
    """Wall time of a step without the kernel log, with its upload and its tokens read back."""
    kernels: tuple[KernelUse, ...]

    @property
    def kernel_ms(self) -> float:
        """Time of all kernels, per step."""
        return sum(use.nanoseconds for use in self.kernels) / 1e6 / self.steps


@dataclass(frozen=True)
class Profile:
    """The result of `mlcc profile`."""

    clock: str
    copy_gb_s: float
    phases: tuple[Phase, ...]


def profile(
    executor: Executor,
    log: KernelLog,
    *,
    context: int,
    batch: int,
    progress: Callable[[str], None],
) -> Profile:
    """Prefill `context` tokens in one step, then decode `batch` sequences of that length.

    Raises CapacityError if they do not fit what the model was compiled for.
    """
    capacity = executor.capacity
    longest = min(capacity.max_step_tokens, capacity.context - STEPS)
    if not 1 <= context <= longest:
        raise CapacityError(f"--context {context} is not within 1 .. {longest} for a profile")
    most = most_sequences(context + STEPS, capacity)
    if not 1 <= batch <= min(capacity.max_batch, most):
        raise CapacityError(
            f"--batch {batch} sequences of {context} tokens do not fit; the model was compiled for "
            f"{capacity.max_batch}, and its caches hold {most}; use less of one of them"
        )
    progress("prefill")
    prefill = _measure(executor, log, "prefill", [_prefill(capacity, context)] * 3)
    progress("decode")
    decode = _measure(executor, log, "decode", _decode(capacity, context, batch))
    progress("bandwidth")
    return Profile(log.clock, log.copy_bandwidth() / 1e9, (prefill, decode))


def log_of(executor: Executor) -> KernelLog:
    """The kernel log of an executor. Raises UnsupportedError if it has none."""
    from mlcc.device.compiled.executor import CompiledExecutor

    if isinstance(executor, CompiledExecutor):
        from mlcc.device.compiled.kernel_log import CompiledKernelLog

        return CompiledKernelLog(executor)
    if is_here("tvm"):
        from mlcc.device.tvm.executor import TvmExecutor
        from mlcc.device.tvm.kernel_log import TvmKernelLog

        if isinstance(executor, TvmExecutor):
            return TvmKernelLog(executor)
    raise UnsupportedError("a model that numpy computes has no kernels; use --target cpu")


def _measure(executor: Executor, log: KernelLog, name: str, batches: list[Batch]) -> Phase:
    """Run once to warm up, once for the wall time, once with the kernel log."""
    _run(executor, batches)
    began = time.perf_counter()
    _run(executor, batches)
    elapsed = time.perf_counter() - began
    log.start(batches[0])
    _run(executor, batches)
    kernels = tuple(log.stop())
    count = len(batches)
    return Phase(name, count, batches[0].num_tokens, 1e3 * elapsed / count, kernels)


def _run(executor: Executor, batches: list[Batch]) -> None:
    for batch in batches:
        executor.collect(executor.submit(batch))


def _prefill(capacity: Capacity, count: int) -> Batch:
    """A step with the whole prompt of one sequence."""
    return ManualSteps(capacity).step({0: _tokens(capacity, 0, range(count))})


def _decode(capacity: Capacity, context: int, sequences: int) -> list[Batch]:
    """Steps of one token per sequence, after a prompt that was not computed."""
    steps = ManualSteps(capacity, sequences)
    steps.skip(context)
    positions = [range(context + i, context + i + 1) for i in range(STEPS)]
    return [
        steps.step({s: _tokens(capacity, s, each) for s in range(sequences)}) for each in positions
    ]


def _tokens(capacity: Capacity, sequence: int, positions: range) -> list[int]:
    return [(7 * p + sequence) % capacity.vocab_size for p in positions]
