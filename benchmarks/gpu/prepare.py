"""Compiles the input of `gpu/run.py`: libraries of published shapes without weights, the demo
model, and the reference's answers. Needs a compiler and no GPU; the folder is copied to the GPU.

    python -m benchmarks.gpu.prepare FOLDER [--target cuda] [--shapes 1b 8b] [--quants q4 bf16]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.measure import greedy
from benchmarks.models import random_checkpoint
from mlcc.artifact.records import to_plain
from mlcc.loader import open_model
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
"""Bounds of the compiled shapes: a context of 32k and some steps more."""
PROMPTS, ANSWER = 20, 16
BOUND = 0.05
"""Logits nearer than this are a tie: pages and matrix tiles are float16."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda", choices=("cuda", "vulkan", "cpu"))
    parser.add_argument("--arch", default="", help="for cuda, e.g. sm_90")
    parser.add_argument("--shapes", nargs="+", default=["1b", "8b"])
    parser.add_argument("--quants", nargs="+", default=["q4", "bf16"])
    given = parser.parse_args()
    if given.folder.exists():
        sys.exit(f"{given.folder} is there already; name another folder")
    prepare(given.folder, given.target, given.shapes, given.quants, given.arch)


def prepare(out: Path, target_name: str, shapes: list[str], quants: list[str], archs: str) -> None:
    """Fill the folder `out`."""
    choices = Choices(archs=tuple(archs.split(",")) if archs else ())
    target = get_target(target_name, choices)
    out.mkdir(parents=True)
    _demo(out, target)
    for shape in shapes:
        for quant in quants:
            row = _shape(out, target, shape, quant)
            say(f"{row['name']}: {row['compile_s']:.1f} s, {row['library_bytes'] / 1e6:.1f} MB")


def _demo(out: Path, target: Target) -> None:
    """The demo model for the target, and what the numpy reference answers."""
    checkpoint = Checkpoint.open(DEMO / "model")
    options = Options(quant="q4", context=512, max_batch=8, max_step_tokens=64)
    compile_model(checkpoint, target, out / "demo", options, Progress())
    rows = (DEMO / "eval.jsonl").read_text(encoding="utf-8").splitlines()[:PROMPTS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "reference"
        compile_model(checkpoint, get_target("reference"), folder, options, Progress())
        model = open_model(folder)
        prompts = [model.text.encode_chat(json.loads(row)["messages"]).tolist() for row in rows]
        answers = greedy(model, prompts, ANSWER)
    expected = {"prompts": prompts, "answers": answers, "bound": BOUND}
    (out / "demo.json").write_text(json.dumps(expected))
    say(f"demo: {len(prompts)} answers of the reference")


def _shape(out: Path, target: Target, shape: str, quant: str) -> dict[str, Any]:
    """A library of a published shape, and a description of its weights and limits."""
    name = f"{shape}-{quant}"
    library = out / f"{name}-{target.library}"
    options = Options(quant=quant, context=CONTEXT, max_batch=BATCH, max_step_tokens=STEP_TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        random_checkpoint.make(Path(folder), shape, CONTEXT, empty=True)
        plan = make_plan(Checkpoint.open(folder), target, options)
    start = time.perf_counter()
    bounds, vocab = Bounds(plan.layout, plan.limits.context), plan.config.vocab_size
    config = LoweringConfig(target, kernel_set_for(target), plan.caches, bounds, vocab)
    lowered = lower(plan.traced, config)
    build(lowered, target, library, out / f"{name}-kernels")
    seconds = time.perf_counter() - start
    row = _description(name, plan, lowered.plans) | {
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


if __name__ == "__main__":
    main()
