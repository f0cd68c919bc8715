"""Measurements on one GPU of the libraries that `libraries.py` compiled. No compiler.

Weights are random; tensors with the same kind of data share a file. Pages hold keys and values of
real tokens. A decode step is timed with the next one queued behind it, as the engine does. Bytes a
second are to be compared with the copy bandwidth measured on the same device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mlcc.artifact.records import from_plain
from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import (
    DTYPE_BYTES,
    CacheInfo,
    Limits,
    TargetInfo,
    TensorSpec,
    page_shape,
)
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import DeviceHandle
from mlcc.device.kernel_log import copy_speed
from mlcc.device.threads import set_threads
from mlcc.device.tvm.runtime import open_device, runtime
from mlcc.engine import Request, SamplingParams, TextDelta
from mlcc.engine.batch.batch import (
    Batch,
    BatchWriter,
    Cache,
    Capacity,
    PageList,
    Result,
    StateSlot,
    int32,
)
from mlcc.engine.batch.executor import Executor
from mlcc.engine.kv_cache.cache_manager import longest_sequence, most_sequences
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import device_handle, executor_of, open_model
from mlcc.model.model import Model


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements."""

    copy_bytes: int = 1 << 30
    steps: int = 64
    prompt: int = 2048
    short: int = 512
    """Context of the decode steps."""
    long: int = 32768
    batches: tuple[int, ...] = (1, 8, 64)
    rounds: int = 3
    """Of which the fastest counts."""


QUICK = Sizes(copy_bytes=1 << 22, steps=2, prompt=64, short=32, long=256, batches=(1, 2), rounds=1)
"""For a trial run on a machine without a GPU."""


def stage_arguments(description: str | None) -> argparse.Namespace:
    """The command line of a stage that measures a shape: folder, name, device, quick."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--device", type=int)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def handle_of(row: dict[str, Any], index: int | None) -> DeviceHandle:
    """The device for a described library. Raises DeviceError."""
    set_threads(None)
    return device_handle(from_plain(TargetInfo, row["target"]), index)


# -- the demo model -------------------------------------------------------------------------------


def demo(folder: Path, index: int | None) -> dict[str, int]:
    """Counts of the demo's answers: equal to the reference's, equal up to a tie, different."""
    reference = json.loads((folder / "demo.json").read_text())
    model = open_model(folder / "demo", EngineArgs(device=index))
    answers = greedy(model, reference["prompts"], len(max(reference["answers"], key=len)))
    counts = {"equal": 0, "ties": 0, "different": 0}
    for prompt, expected, found in zip(
        reference["prompts"], reference["answers"], answers, strict=True
    ):
        counts[_verdict(model, prompt, expected, found, reference["bound"])] += 1
    model.close()
    return counts


def _verdict(model: Model, prompt: Any, expected: Any, found: Any, bound: float) -> str:
    if expected == found:
        return "equal"
    at = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    if at is None:
        return "different"  # one of them ended early
    executor: Any = model.executor
    prefix = ManualSteps(executor.capacity).step({0: [*prompt, *expected[:at]]})
    logits = executor.logits(prefix)[0]
    gap = abs(float(logits[expected[at]] - logits[found[at]]))
    return "ties" if gap < bound else "different"


def greedy(model: Model, prompts: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    """Greedy answers to all prompts at once, through the engine, as token ids."""
    from mlcc.model.driver import Driver

    driver = Driver(model)
    answers: list[list[int]] = [[] for _ in prompts]
    for i, prompt in enumerate(prompts):
        sampling = SamplingParams(temperature=0.0, max_tokens=limit)
        driver.engine.add(Request(str(i), list(prompt), sampling))
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, TextDelta):
                answers[int(event.request_id)].extend(event.token_ids)
    return answers


# -- a model of random weights --------------------------------------------------------------------


def copy_bandwidth(handle: DeviceHandle, executor: Executor, sizes: Sizes) -> float:
    """Bytes a second, read and written, of copies on the device of the executor."""
    if isinstance(executor, CompiledExecutor):
        return copy_speed(executor.copy_time, sizes.copy_bytes)
    tvm, device = runtime(), open_device(handle.kind, handle.index)
    a, b = (tvm.runtime.empty((sizes.copy_bytes // 4,), "float32", device) for _ in range(2))

    def copies(count: int) -> None:
        for _ in range(count):
            a.copyto(b)
        device.sync()

    copies(3)
    seconds = _best(lambda: copies(10), sizes.rounds)
    return 10 * 2 * sizes.copy_bytes / seconds


@dataclass(frozen=True)
class OpenShape:
    """A library of a published shape with random weights, its pages filled."""

    executor: Executor
    caches: tuple[CacheInfo, ...]
    weight_bytes: int
    """Bytes of weights that every step reads."""


def open_shape(
    folder: Path, row: dict[str, Any], handle: DeviceHandle, sizes: Sizes, *, graphs: bool = True
) -> OpenShape:
    """Open a described library. graphs: replay decode steps as CUDA graphs, where it can.

    Raises CapacityError, DeviceError.
    """
    caches = from_plain(tuple[CacheInfo, ...], row["caches"])
    capacity = _capacity(row, caches, handle, sizes)
    functions = tuple(name for name in row["functions"] if graphs or name != "decode")
    with TemporaryDirectory() as files:
        weights = random_weights(row["weights"], Path(files))
        model = CompiledModel(folder / row["library"], weights, caches, functions)
        executor = executor_of(model, capacity, handle)
    fill_pages(executor)
    read = zip(weights, row["weights"], strict=True)
    return OpenShape(executor, caches, sum(a.stop - a.start for a, w in read if w["read"]))


def speeds(model: OpenShape, sizes: Sizes) -> dict[str, Any]:
    """Tokens and bytes a second. Batches and contexts that the pools do not hold are left out."""
    executor, caches = model.executor, model.caches
    result: dict[str, Any] = {"weight_bytes": model.weight_bytes}
    for b in sizes.batches:
        if not holds(executor.capacity, b, sizes.short + sizes.steps):
            continue
        seconds = decode_seconds(executor, b, sizes.short, sizes)
        read = model.weight_bytes + b * _cache_bytes(caches, sizes.short)
        result |= {f"decode_{b}": b / seconds, f"decode_{b}_bytes_s": read / seconds}
    if holds(executor.capacity, 1, sizes.long + sizes.steps):
        page = max(cache.page_size for cache in caches)
        near, far = (decode_seconds(executor, 1, n, sizes) for n in (page, sizes.long))
        result["long_context_tok_s"] = 1 / far
        if far > _CLEARLY * near:  # else noise, divided by
            read = _cache_bytes(caches, sizes.long) - _cache_bytes(caches, page)
            result["attention_bytes_s"] = read / (far - near)
    result["prefill_tok_s"] = sizes.prompt / prefill_seconds(executor, sizes)
    return result


_CLEARLY = 1.05
"""Times as long that a step behind a long context must take, for its difference to one behind a
short context to be attention and not noise."""


def _capacity(
    row: dict[str, Any], caches: Sequence[CacheInfo], handle: DeviceHandle, sizes: Sizes
) -> Capacity:
    """Page pools for the largest measured step, as far as the device binds them."""
    limits, most = from_plain(Limits, row["limits"]), handle.memory.tensor_bytes
    batch = min(max(sizes.batches), limits.max_batch)
    tokens = max(batch * (sizes.short + 2 * sizes.steps), sizes.long + 2 * sizes.steps)
    pools = []
    for cache in caches:
        pages = -(-tokens // cache.page_size) + 2 * batch
        if most is not None:
            pages = min(pages, most // max(map(_page_bytes, cache.tensors)))
        pools.append(pages)
    return Capacity(
        vocab_size=row["vocab_size"],
        context=limits.context,
        layout=limits.layout([cache.group for cache in caches]),
        pools=tuple(pools),
        max_batch=limits.max_batch,
        max_step_tokens=limits.max_step_tokens,
        max_rows=limits.max_rows,
    )


def _page_bytes(tensor: TensorSpec) -> int:
    return int(np.prod(page_shape(tensor))) * DTYPE_BYTES[tensor.dtype]


def holds(capacity: Capacity, sequences: int, tokens: int) -> bool:
    """Whether a step of these sequences fits."""
    fits = sequences <= capacity.max_batch and tokens <= capacity.context
    return fits and most_sequences(tokens, capacity) >= sequences


def fill_pages(executor: Executor) -> None:
    """Give every page keys and values: those of a prompt, computed once and copied. Pages of zeros
    would be timed with fewer bits that change, and with scores that are all equal."""
    capacity = executor.capacity
    fits = longest_sequence(capacity.pools, capacity.groups, capacity.context)
    count = min(256, capacity.max_step_tokens, fits)
    prompt = [(7919 * i) % capacity.vocab_size for i in range(count)]
    batch = ManualSteps(capacity).step({0: prompt})
    executor.collect(executor.submit(batch))
    copies = []
    for g, (group, pool) in enumerate(zip(capacity.groups, capacity.pools, strict=True)):
        if group.has_pages:
            sources = batch.page_list(g)
            rest = sorted({*range(pool)} - {*sources})
            copies += [(g, sources[i % len(sources)], page) for i, page in enumerate(rest)]
    most = capacity.layout.max_copies
    for start in range(0, len(copies), most):
        step = _copying(capacity, copies[start : start + most])
        executor.collect(executor.submit(step))


def _copying(capacity: Capacity, copies: Sequence[tuple[int, int, int]]) -> Batch:
    """A step that copies pages, and computes the first token of a sequence once more."""
    writer = BatchWriter(capacity.layout)
    for copy in copies:
        writer.copy(*copy)
    caches: list[Cache] = [
        PageList(int32([0]), 0, group.page_size) if group.has_pages else StateSlot(-1, 0)
        for group in capacity.groups
    ]
    writer.row(writer.sequence([0], 0, caches))
    return writer.finish()


def _cache_bytes(caches: Sequence[CacheInfo], context: int) -> int:
    """Bytes of keys and values that one token of a sequence of this length reads."""
    return sum(
        min(context, cache.window or context) * cache.bytes_per_page // cache.page_size
        for cache in caches
    )


def random_weights(specs: Sequence[dict[str, Any]], folder: Path) -> list[TensorEntry]:
    """Tensors of the described shapes; those with the same kind of data share a file."""
    words = {w["fill"]: 0 for w in specs}
    for w in specs:
        words[w["fill"]] = max(words[w["fill"]], int(np.prod(w["shape"])))
    for fill, count in words.items():
        (folder / fill).write_bytes(_filled(fill, 4 * count).tobytes())
    return [
        TensorEntry(
            folder / w["fill"],
            str(i),
            w["dtype"],
            tuple(w["shape"]),
            0,
            int(np.prod(w["shape"])) * np.dtype(w["dtype"]).itemsize,
        )
        for i, w in enumerate(specs)
    ]


_HALVES = {"float16": (0x03FF, 0x2400), "bfloat16": (0x007F, 0x3C80), "scales": (0, 0x1C00)}
"""16-bit floats: the mask of random bits, and the exponent: about 1/64, scales 1/256."""


def _filled(fill: str, nbytes: int) -> Any:
    """Random bytes that are finite numbers of the kind."""
    if fill == "ones":
        return np.ones(nbytes // 4, np.float32).view(np.uint8)
    if fill == "zeros":
        return np.full(nbytes, 8, np.uint8)
    block = np.random.default_rng(0).integers(0, 256, min(nbytes + 4, 1 << 24), np.uint8)
    data = np.resize(block, nbytes)
    if fill == "float32":
        data.view(np.uint32)[:] = data.view(np.uint32) & 0x807FFFFF | 0x3C800000
    if fill in _HALVES:
        mask, exponent = _HALVES[fill]
        sign = 0x8000 if mask else 0
        data.view(np.uint16)[:] = data.view(np.uint16) & (mask | sign) | exponent
    return data


# -- steps ----------------------------------------------------------------------------------------


def decode_batches(executor: Executor, sequences: int, context: int, steps: int) -> list[Batch]:
    """Steps that add a token to each sequence; the one before them is computed here."""
    manual, every = ManualSteps(executor.capacity, sequences), range(sequences)
    manual.skip(context - 1)
    executor.collect(executor.submit(manual.step({s: [1] for s in every})))
    return [manual.step({s: [-1 - s] for s in every}) for _ in range(steps)]


def prefill_batches(executor: Executor, prompt: int) -> list[Batch]:
    """The steps of a prompt, each of the largest compiled size."""
    manual, chunk = ManualSteps(executor.capacity), executor.capacity.max_step_tokens
    ids = [(7919 * i) % executor.capacity.vocab_size for i in range(prompt)]
    return [manual.step({0: ids[start : start + chunk]}) for start in range(0, prompt, chunk)]


def decode_seconds(executor: Executor, sequences: int, context: int, sizes: Sizes) -> float:
    """Seconds of a step that adds a token to each sequence, the next step queued behind it."""
    batches = decode_batches(executor, sequences, context, sizes.steps)

    def run() -> None:
        waiting = [executor.submit(batches[0])]
        for batch in batches[1:]:
            waiting.append(executor.submit(batch))
            executor.collect(waiting.pop(0))
        _finish(executor, waiting)

    return _best(run, sizes.rounds) / sizes.steps


def prefill_seconds(executor: Executor, sizes: Sizes) -> float:
    """Seconds of a prompt in steps of the largest compiled size."""
    batches = prefill_batches(executor, sizes.prompt)

    def run() -> None:
        _finish(executor, [executor.submit(batch) for batch in batches])

    return _best(run, sizes.rounds)


def _finish(executor: Executor, tickets: Sequence[int]) -> list[Result]:
    return [executor.collect(ticket) for ticket in tickets]


def _best(run: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest round, after one warm-up round."""
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
