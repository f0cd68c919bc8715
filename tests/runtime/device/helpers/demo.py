"""The demo model on both executors: libmlcc_executor's, and that of TVM's package."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcc.artifact.folder import Artifact
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.device import CPU, DeviceHandle
from mlcc.device.tvm.executor import TvmExecutor
from mlcc.engine import Request, SamplingParams, TextDelta
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties
from mlcc.engine.batch.batch import Capacity
from mlcc.loader import compiled_model
from mlcc.model.driver import Driver
from mlcc.model.memory.planner import plan_capacity
from mlcc.model.model import Model, ModelText
from mlcc.model.text import open_text


def capacity_of(folder: Path, **limits: int | None) -> Capacity:
    """The capacity of an artifact, or less."""
    limits = {"max_batch": None, "context": None, **limits}
    return plan_capacity(Artifact.open(folder, host=False).manifest, **limits)


def cpu_executor(folder: Path, threads: int = 1, **limits: int | None) -> CompiledExecutor:
    """An executor over libmlcc_executor."""
    model = compiled_model(Artifact.open(folder))
    return CompiledExecutor(model, capacity_of(folder, **limits), threads=threads)


def vulkan_executor(folder: Path, **options: Any) -> CompiledExecutor:
    """Over libmlcc_executor, with room for few short sequences; `options` are the executor's."""
    arguments = {
        "capacity": capacity_of(folder, context=256, max_batch=4),
        "handle": DeviceHandle("webgpu"),
        **options,
    }
    return CompiledExecutor(compiled_model(Artifact.open(folder)), **arguments)


def tvm_executor(
    folder: Path, copies: Path, handle: DeviceHandle = CPU, **limits: int | None
) -> TvmExecutor:
    """An executor over TVM's package. It loads a copy of the library: loading binds a file to one
    runtime, and a process loads each file once."""
    model = replace(compiled_model(Artifact.open(folder)), interface=None)
    library = Path(shutil.copyfile(model.library, copies / "model-of-tvm.so"))
    return TvmExecutor(replace(model, library=library), capacity_of(folder, **limits), handle)


def adjusted(executor: Any, rng: random.Random, rows: int) -> Adjustments:
    """Adjustments of any kind, of every row, in the executor's own memory."""
    layout = AdjustLayout.of(executor.capacity.layout, executor.capacity.vocab_size)
    writer = AdjustmentWriter(layout, executor.adjustments_buffer())
    for row in range(rows):
        history = dict.fromkeys(rng.sample(range(300), 20), 1)
        writer.row(row, Penalties(1.3, 0.5, 0.2), history=history, bias={rng.randrange(300): 4.0})
    return writer.finish()


def text_of(folder: Path) -> ModelText:
    """The tokenizer and chat template."""
    return open_text(folder)


def answers(
    text: ModelText, executor: Any, prompts: Sequence[str], sampling: SamplingParams
) -> list[list[int]]:
    """Token ids of the answers to all prompts at once, through the engine."""
    driver = Driver(Model(text, executor))
    found: list[list[int]] = [[] for _ in prompts]
    for i, prompt in enumerate(prompts):
        given = sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + i)
        driver.engine.add(Request(str(i), text.encode_prompt(prompt), given))
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, TextDelta):
                found[int(event.request_id)].extend(event.token_ids)
    return found
