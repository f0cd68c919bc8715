"""Compiles of published shapes without their weights: seconds, memory and plans.

    python -m benchmarks.models.real_shapes [--shape qwen3-30b-a3b ...]
        [--target cpu vulkan cuda webgpu]

Each pair runs in a process of its own: plan, lower, build the library, discard it. Prints a line
each: seconds (wall and CPU), peak memory, and the memory that the model needs on its device; or why
it is refused. Weights are q4 unless --quant says otherwise.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHAPES = ("qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3.5-4b")
TARGETS = ("cpu", "vulkan", "cuda", "webgpu")


def compile_one(shape: str, name: str, quant: str, context: int) -> dict[str, Any]:
    """Compile one pair in this process. Raises MlccError."""
    from benchmarks.models.published_shapes import without_weights
    from mlcc.artifact.expert_weights import expert_bytes
    from mlcc.artifact.schema import WeightSpec
    from mlcc_compiler.kernels import kernel_set_for
    from mlcc_compiler.options import Options
    from mlcc_compiler.pipeline import Bounds, LoweringConfig, build, lower
    from mlcc_compiler.plan import make_plan
    from mlcc_compiler.weights.convert import specs_of
    from mlcc_targets import get_target

    target = get_target(name)
    options = Options(quant=quant, context=context, max_batch=8, max_step_tokens=512)
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(without_weights(Path(folder), shape), target, options)
        target.prepare(lambda text: None)
        bounds = Bounds(plan.layout, plan.limits.context)
        kernels = kernel_set_for(target, plan.activation_bits, plan.rounds_rows)
        config = LoweringConfig(target, kernels, plan.caches, bounds, plan.vocab_size)
        lowered = lower(plan.traced, config)
        library = Path(folder) / target.library
        build(lowered, plan.target, library)
        size = library.stat().st_size
    specs = [
        WeightSpec(name=spec.name, dtype=spec.dtype, shape=tuple(map(int, spec.shape)), shard="")
        for spec in specs_of(lowered.plans)
    ]
    caches = plan.caches.infos(plan.pools)
    return {
        "library_mb": size / 1e6,
        "weights_mb": sum(spec.nbytes for spec in specs) / 1e6,
        "experts_mb": expert_bytes(specs)[0] / 1e6,
        "caches_mb": sum(cache.pool * cache.bytes_per_page for cache in caches) / 1e6,
        "workspace_mb": lowered.workspace_bytes / 1e6,
    }


def child(shape: str, target: str, quant: str, context: int) -> None:
    """Compile one pair and print its result as JSON."""
    from mlcc.errors import MlccError

    start, result = time.perf_counter(), {}
    try:
        result = compile_one(shape, target, quant, context)
    except MlccError as error:
        result = {"refused": error.message}
    used = resource.getrusage(resource.RUSAGE_SELF)
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    result["seconds"] = time.perf_counter() - start
    result["cpu_seconds"] = sum(u.ru_utime + u.ru_stime for u in (used, below))
    result["peak_mb"] = max(used.ru_maxrss, below.ru_maxrss) * 1024 / 1e6
    print(json.dumps(result))


def line(shape: str, target: str, row: dict[str, Any]) -> str:
    """A row of the table."""
    usage = f"{row['seconds']:.0f} s, {row['cpu_seconds']:.0f} s of CPU, {row['peak_mb']:.0f} MB"
    if "refused" in row:
        return f"{shape:<18}{target:<8}{usage}: {row['refused']}"
    plan = ", ".join(f"{name} {row[f'{name}_mb']:,.0f} MB" for name in ("weights", "experts", "caches", "workspace"))  # fmt: skip  # noqa: E501
    return f"{shape:<18}{target:<8}{usage}: {plan}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", nargs="*", default=SHAPES)
    parser.add_argument("--target", nargs="*", default=TARGETS)
    parser.add_argument("--quant", default="q4")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--one", action="store_true", help="the first pair, in this process")
    given = parser.parse_args()
    if given.one:
        child(given.shape[0], given.target[0], given.quant, given.context)
        return
    for shape in given.shape:
        for target in given.target:
            words = ["--shape", shape, "--target", target, "--quant", given.quant]
            command = [sys.executable, "-m", "benchmarks.models.real_shapes", "--one", *words]
            command += ["--context", str(given.context)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{shape:<18}{target:<8}failed: {done.stderr.strip().splitlines()[-1]}")
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            print(line(shape, target, row), flush=True)


if __name__ == "__main__":
    main()
