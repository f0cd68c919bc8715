"""A random model of any architecture, run through mixed batches of chunks and steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mlcc.artifact.safetensors import TensorEntry, read_header
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import CPU, DeviceHandle
from mlcc.device.reference.executor import ReferenceExecutor
from mlcc.engine.batch.batch import Capacity
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir.graph_json import graph_to_json
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.options import Options
from mlcc_compiler.pipeline import Bounds, LoweringConfig, build, lower
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.weights.convert import arrays_of
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import CONTEXT, make_checkpoint, oracle_logits
from tests.helpers.batches import PagedSequences

ROWS = 64
"""Logit rows per step: these tests need the logits of every token."""


def planned(case: str, folder: Path) -> tuple[Any, Plan]:
    """(transformers' model in float64, the plan of a compile in float32)."""
    oracle = make_checkpoint(case, folder)
    options = Options(quant="f32", context=CONTEXT.get(case, 128), max_batch=8)
    return oracle, make_plan(Checkpoint.open(folder), get_target("cpu"), options)


def capacity_of(plan: Plan) -> Capacity:
    """Pages for four sequences at once, logits of every token of a step."""
    groups = plan.caches.groups
    context = plan.limits.context
    return Capacity.of(
        groups,
        [4 * group.most_pages(context, ROWS) for group in groups],
        vocab_size=plan.config.vocab_size,
        context=context,
        max_batch=8,
        max_step_tokens=ROWS,
        max_rows=ROWS,
        token_columns=plan.token_columns,
    )


def bounds_of(plan: Plan) -> Bounds:
    """The bounds of a model that is compiled but not loaded."""
    return Bounds(capacity_of(plan).layout, plan.limits.context)


def stored(plan: Plan) -> list[WeightPlan]:
    """How a CPU stores the weights of a plan: q and k as one, gate and up as one."""
    kernels = kernel_set_for(plan.target, plan.activation_bits, plan.rounds_rows)
    vocab = plan.config.vocab_size
    config = LoweringConfig(plan.target, kernels, plan.caches, bounds_of(plan), vocab)
    return lower(plan.traced, config).plans


def native(plan: Plan, folder: Path, capacity: Capacity, handle: DeviceHandle = CPU) -> Any:
    """Compile a plan's `forward` with room for many logit rows, and load it where it runs."""
    kernels = kernel_set_for(plan.target, plan.activation_bits, plan.rounds_rows)
    vocab = plan.config.vocab_size
    bounds = Bounds(capacity.layout, capacity.context)
    config = LoweringConfig(plan.target, kernels, plan.caches, bounds, vocab, generates=False)
    lowered = lower(plan.traced, config)
    library = folder / "model.so"
    build(lowered, plan.target, library)
    weights = list(arrays_of(lowered.plans, plan.checkpoint.tensors, plan.sources, lambda *_: None))
    caches = plan.caches.infos(capacity.pools)
    stored = stored_in(folder / "weights.safetensors", weights)
    rows = replace(plan.embeddings, hidden=ROWS) if plan.embeddings else None
    model = CompiledModel(library, stored, caches, lowered.functions, embeddings=rows)
    return CompiledExecutor(model, capacity, handle, threads=2)


def stored_in(path: Path, arrays: Sequence[Any]) -> list[TensorEntry]:
    """Arrays in a file, where few of them are aligned."""
    save_file({str(i): np.ascontiguousarray(array) for i, array in enumerate(arrays)}, path)
    header = read_header(path)
    return [header[str(i)] for i in range(len(arrays))]


def reference(plan: Plan, capacity: Capacity) -> ReferenceExecutor:
    """The plan's graph in numpy, float64."""
    weights = {name: plan.checkpoint.tensors.read(source) for name, source in plan.sources.items()}
    graph = json.loads(graph_to_json(plan.traced))
    infos = plan.caches.infos(capacity.pools)
    rows = replace(plan.embeddings, hidden=ROWS) if plan.embeddings else None
    return ReferenceExecutor(graph, weights, capacity, infos, "float64", embeddings=rows)


def run_mixed(executor: Any, oracle: Any, context: int, spread: float = 1.0) -> float:
    """The largest error over three ways of feeding sequences; checks the logits' spread too."""
    rng = np.random.default_rng(7)
    # transformers picks LongRoPE's factors by the running length, mlcc by the context it compiles
    # for: compare where they agree, beyond the original 32 tokens or within them.
    long, middle, short = (60, 40, 36) if context > 60 else (30, 29, 17)
    sequences = [rng.integers(3, 131, n).tolist() for n in (long, middle, short)]
    paged = PagedSequences(executor, sequences)
    paged.step({0: long // 2})  # a chunk
    paged.step({1: middle, 0: 1})  # a whole prompt beside a decode row
    paged.step({2: short - 10})
    while paged.done != [long, middle, short]:
        left = {0: min(3, long - paged.done[0]), 2: min(1, short - paged.done[2])}
        paged.step({s: count for s, count in left.items() if count})
    worst = 0.0
    for s, sequence in enumerate(sequences):
        assert paged.done[s] == len(sequence)
        expected = oracle_logits(oracle, sequence)
        assert expected.std() >= spread
        worst = max(worst, float(np.abs(paged.result(s) - expected).max()))
    return worst
