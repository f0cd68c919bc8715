"""The measurements of `gpu/run.py` on one GPU, from the folder of `gpu/prepare.py`. No compiler.

Weights are random; tensors with the same kind of data share a file. A decode step is
timed with the next one queued behind it, as the engine does. Fractions are of the copy bandwidth
measured just before on the same device.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import CacheInfo, Limits
from mlcc.artifact.records import from_plain
from mlcc.artifact.safetensors import TensorEntry
from mlcc.device.compiled import webgpu
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import DeviceHandle
from mlcc.device.select import select_device
from mlcc.device.threads import set_threads
from mlcc.device.tvm.runtime import open_device, runtime
from mlcc.engine import Request, SamplingParams, TextDelta
from mlcc.engine.batch.batch import Capacity, Result
from mlcc.engine.batch.executor import Executor
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import executor_of, open_model
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


QUICK = Sizes(copy_bytes=1 << 22, steps=2, prompt=64, short=32, long=256, batches=(1, 2))
"""For a trial run on a machine without a GPU."""


def handle_of(folder: Path, index: int | None) -> DeviceHandle:
    """The device for the libraries in `folder`. Raises DeviceError."""
    set_threads(None)
    return select_device(Artifact.open(folder / "demo").manifest.target, index)


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


def copy_bandwidth(folder: Path, handle: DeviceHandle, sizes: Sizes) -> float:
    """Bytes a second, read and written, of copies on the device."""
    if handle.kind == webgpu.KIND:
        return _executor_copy_bandwidth(folder, handle, sizes)
    tvm, device = runtime(), open_device(handle.kind, handle.index)
    a, b = (tvm.runtime.empty((sizes.copy_bytes // 4,), "float32", device) for _ in range(2))

    def copies(count: int) -> None:
        for _ in range(count):
            a.copyto(b)
        device.sync()

    copies(3)
    seconds = _best(lambda: copies(10))
    return 10 * 2 * sizes.copy_bytes / seconds


def _executor_copy_bandwidth(folder: Path, handle: DeviceHandle, sizes: Sizes) -> float:
    model = open_model(folder / "demo", EngineArgs(device=handle.index))
    executor = model.executor
    assert isinstance(executor, CompiledExecutor)
    nanoseconds = min(executor.copy_time(sizes.copy_bytes) for _ in range(10))
    model.close()
    return 2 * sizes.copy_bytes / nanoseconds * 1e9


def shape(folder: Path, row: dict[str, Any], handle: DeviceHandle, sizes: Sizes) -> dict[str, Any]:
    """Speeds of one library: tokens and bytes a second."""
    caches = from_plain(tuple[CacheInfo, ...], row["caches"])
    capacity = _capacity(row, caches, sizes)
    library, functions = folder / row["library"], row["functions"]
    with TemporaryDirectory() as files:
        weights = random_weights(row["weights"], Path(files))
        model = CompiledModel(library, weights, caches, functions)
        executor = executor_of(model, capacity, handle)
    read = zip(weights, row["weights"], strict=True)
    weight_bytes = sum(a.stop - a.start for a, w in read if w["read"])
    result: dict[str, Any] = {"name": row["name"], "weight_bytes": weight_bytes}
    for b in sizes.batches:
        seconds = decode_seconds(executor, b, sizes.short, sizes.steps)
        read = weight_bytes + b * _cache_bytes(caches, sizes.short)
        result |= {f"decode_{b}": b / seconds, f"decode_{b}_bytes_s": read / seconds}
    page = max(cache.page_size for cache in caches)
    near, far = (decode_seconds(executor, 1, n, sizes.steps) for n in (page, sizes.long))
    read = _cache_bytes(caches, sizes.long) - _cache_bytes(caches, page)
    result["long_context_tok_s"] = 1 / far
    result["attention_bytes_s"] = read / max(far - near, 1e-9)
    result["prefill_tok_s"] = sizes.prompt / prefill_seconds(executor, sizes.prompt)
    executor.close()
    return result


def _capacity(row: dict[str, Any], caches: Sequence[CacheInfo], sizes: Sizes) -> Capacity:
    """Page pools for the largest measured step."""
    limits, batch = from_plain(Limits, row["limits"]), max(sizes.batches)
    tokens = max(batch * (sizes.short + 2 * sizes.steps), sizes.long + 2 * sizes.steps)
    groups = [cache.group for cache in caches]
    return Capacity(
        vocab_size=row["vocab_size"],
        context=limits.context,
        layout=limits.layout(groups),
        pools=tuple(-(-tokens // group.page_size) + 2 * batch for group in groups),
        max_batch=limits.max_batch,
        max_step_tokens=limits.max_step_tokens,
        max_rows=limits.max_rows,
    )


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


def decode_seconds(executor: Executor, sequences: int, context: int, steps: int) -> float:
    """Seconds of a step that adds a token to each sequence, the next step queued behind it."""
    manual, every = ManualSteps(executor.capacity, sequences), range(sequences)
    manual.skip(context - 1)
    executor.collect(executor.submit(manual.step({s: [1] for s in every})))
    batches = [manual.step({s: [-1 - s] for s in every}) for _ in range(steps)]

    def run() -> None:
        waiting = [executor.submit(batches[0])]
        for batch in batches[1:]:
            waiting.append(executor.submit(batch))
            executor.collect(waiting.pop(0))
        _finish(executor, waiting)

    return _best(run) / steps


def prefill_seconds(executor: Executor, prompt: int) -> float:
    """Seconds of a prompt in steps of the largest compiled size."""
    manual, chunk = ManualSteps(executor.capacity), executor.capacity.max_step_tokens
    ids = [(7919 * i) % executor.capacity.vocab_size for i in range(prompt)]
    batches = [manual.step({0: ids[start : start + chunk]}) for start in range(0, prompt, chunk)]
    return _best(lambda: _finish(executor, [executor.submit(batch) for batch in batches]))


def _finish(executor: Executor, tickets: Sequence[int]) -> list[Result]:
    return [executor.collect(ticket) for ticket in tickets]


def _best(run: Callable[[], object], rounds: int = 3) -> float:
    """Seconds of the fastest round, after one warm-up round."""
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
