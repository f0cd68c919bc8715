"""Compiles what a GPU day runs for one target: the demo model with the reference's answers, and
libraries of published shapes without weights. Needs a compiler and no GPU; a part of `pack`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.measure import greedy
from benchmarks.models import random_checkpoint
from mlcc.artifact.records import to_plain
from mlcc.loader import open_model
from mlcc_compiler.artifact.describe import target_info
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.options import Options
from mlcc_compiler.pipeline import Bounds, LoweringConfig, build, lower
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.quantization import scheme
from mlcc_targets import Choices, Target, get_target

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"
CONTEXT, BATCH, STEP_TOKENS = 33024, 64, 2048
"""Bounds of the compiled shapes, where the target's largest binding allows them: a context of 32k
and some steps more."""
PROMPTS, ANSWER = 20, 16
BOUND = 0.05
"""Logits nearer than this are a tie: pages and matrix tiles are float16."""
_RANGE = 128
"""Keys of a row of partial sums in decode attention (kernels/gpu/attention/plan.py)."""


def prepare(
    out: Path,
    target_name: str,
    shapes: list[str],
    quants: list[str],
    archs: str = "",
    *,
    prompts: int = PROMPTS,
) -> None:
    """Fill the folder `out`. prompts: questions to the demo model; 0 = no demo model."""
    choices = Choices(archs=tuple(archs.split(",")) if archs else ())
    target = get_target(target_name, choices)
    out.mkdir(parents=True)
    if prompts:
        _demo(out, target, prompts)
    for shape in shapes:
        for quant in quants:
            row = _shape(out, target, shape, quant)
            say(
                f"{target_name} {row['name']}: {row['compile_s']:.1f} s, "
                f"{row['library_bytes'] / 1e6:.1f} MB"
            )


@dataclass(frozen=True)
class ShapeBounds:
    """Bounds that a shape is compiled with."""

    context: int
    max_batch: int
    max_step_tokens: int

    @classmethod
    def of(cls, sizes: dict[str, int], target: Target) -> ShapeBounds:
        """The largest powers of two with which the arrays of a step fit the target's binding: the
        partial sums of attention over all ranges of keys, and the inputs of an MLP's last
        product."""
        binding = target.limits.get("storage_binding_bytes", 1 << 40)
        ranges = CONTEXT // _RANGE + 1
        batch, tokens = BATCH, STEP_TOKENS
        while batch * ranges * 4 * sizes["hidden_size"] > binding:
            batch //= 2
        while tokens * 2 * 4 * sizes["intermediate_size"] > binding:
            tokens //= 2
        return cls(CONTEXT, batch, tokens)


def _demo(out: Path, target: Target, count: int) -> None:
    """The demo model for the target, and what the numpy reference answers. Steps are long enough
    for the kernels of most rows."""
    checkpoint = Checkpoint.open(DEMO / "model")
    options = Options(quant="q4", context=512, max_batch=8, max_step_tokens=256)
    compile_model(checkpoint, target, out / "demo", options, Progress())
    rows = (DEMO / "eval.jsonl").read_text(encoding="utf-8").splitlines()[:count]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "reference"
        compile_model(checkpoint, get_target("reference"), folder, options, Progress())
        model = open_model(folder)
        prompts = [model.text.encode_chat(json.loads(row)["messages"]).tolist() for row in rows]
        answers = greedy(model, prompts, ANSWER)
    expected = {"prompts": prompts, "answers": answers, "bound": BOUND}
    (out / "demo.json").write_text(json.dumps(expected))
    say(f"{target.name} demo: {len(prompts)} answers of the reference")


def _shape(out: Path, target: Target, shape: str, quant: str) -> dict[str, Any]:
    """A library of a published shape, and a description of its weights and limits."""
    name = f"{shape}-{quant}"
    library = out / f"{name}-{target.library}"
    most = ShapeBounds.of(random_checkpoint.SHAPES[shape], target)
    options = Options(
        quant=quant,
        context=most.context,
        max_batch=most.max_batch,
        max_step_tokens=most.max_step_tokens,
    )
    with tempfile.TemporaryDirectory() as folder:
        random_checkpoint.make(Path(folder), shape, CONTEXT, empty=True)
        plan = make_plan(Checkpoint.open(folder), target, options)
    start = time.perf_counter()
    bounds, vocab = Bounds(plan.layout, plan.limits.context), plan.config.vocab_size
    config = LoweringConfig(target, kernel_set_for(target), plan.caches, bounds, vocab)
    lowered = lower(plan.traced, config)
    build(lowered, target, library)
    seconds = time.perf_counter() - start
    row = _description(name, plan, lowered.plans)
    weights = max(prod(w["shape"]) * np.dtype(w["dtype"]).itemsize for w in row["weights"])
    row |= {
        "target": to_plain(target_info(target, max(lowered.largest_array, weights))),
        "library": library.name,
        "library_bytes": library.stat().st_size,
        "compile_s": seconds,
        "functions": lowered.functions,
        "workspace_bytes": lowered.workspace_bytes,
        "config": random_checkpoint.SHAPES[shape],
    }
    (out / f"{name}.json").write_text(json.dumps(row))
    return row


def _description(name: str, plan: Plan, plans: list[WeightPlan]) -> dict[str, Any]:
    weights = [_weight(p, i) for p in plans for i in range(len(p.layout.tensors))]
    return {
        "name": name,
        "vocab_size": plan.config.vocab_size,
        "limits": to_plain(plan.limits),
        "caches": to_plain(plan.caches.infos(plan.pools)),
        "weights": weights,
    }


def _weight(plan: WeightPlan, i: int) -> dict[str, Any]:
    """One stored tensor, with the kind of random data that keeps every value finite."""
    part = plan.layout.tensors[i]
    how = scheme(plan.scheme)
    fill = "ones" if plan.use == "vector" else how.dtype if how.is_float else "codes"
    if part.suffix.startswith((".scales", ".zeros")):
        fill = part.suffix[1:].partition(".")[0]
    read = plan.use != "table"  # a step reads one row of a table per token
    return {"dtype": part.dtype, "shape": part.shape, "fill": fill, "read": read}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
