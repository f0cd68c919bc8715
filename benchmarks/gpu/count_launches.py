"""Counts the launches of a decode step on CUDA, by kernel, without a GPU and without weights.

    python -m benchmarks.gpu.count_launches [--shape 8b] [--quant q4] [--batch 1 64] [--layer]

They are those of the lowered graph: a kernel's function may hold several launches under conditions
on its sizes, which are evaluated for the batch. `--layer` prints one layer, launch by launch.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.models import random_checkpoint
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir._tvm import ir, tirx, tvm
from mlcc_compiler.ir.graph import calls, is_call
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.options import Options
from mlcc_compiler.passes.decode_graph import NAME
from mlcc_compiler.pipeline import Bounds, LoweringConfig, lower
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, Target, get_target

_LAYER = "rotate_and_append"
"""A kernel that each layer has once."""


def launches(shape: str, quant: str, target: Target, batch: int) -> list[str]:
    """The names of a decode step's launches, in order. Raises MlccError."""
    with tempfile.TemporaryDirectory() as folder:
        random_checkpoint.make(Path(folder), shape, 1024, empty=True)
        return launches_for(Path(folder), quant, target, batch)


def launches_for(
    folder: Path, quant: str, target: Target, batch: int, activations: int | None = None
) -> list[str]:
    """The same of a checkpoint. activations: their bits. Raises MlccError."""
    options = Options(
        quant=quant,
        context=1024,
        max_batch=max(batch, 2),
        max_step_tokens=2048,
        activations=activations,
    )
    plan = make_plan(Checkpoint.open(folder), target, options)
    bounds, vocab = Bounds(plan.layout, plan.limits.context), plan.config.vocab_size
    kernels = kernel_set_for(target, plan.activation_bits, plan.rounds_rows)
    config = LoweringConfig(target, kernels, plan.caches, bounds, vocab)
    found: list[str] = []

    def look(phase: str, module: ir.IRModule) -> None:
        if phase == "fused":
            found.extend(_of(module, batch))

    lower(plan.traced, config, look)  # type: ignore[arg-type]
    return found


def _of(module: ir.IRModule, batch: int) -> Iterator[str]:
    """A decode step of that many sequences."""
    sizes = dict.fromkeys(("n", "b", "r", "m", "sequences"), batch)
    for call in calls(module[NAME]):
        if is_call(call, "relax.call_tir") or is_call(call, "relax.call_tir_inplace"):
            variable = call.args[0]
            for _ in range(launches_of(module[variable], sizes)):
                yield str(variable.name_hint)


def launches_of(kernel: Any, sizes: Mapping[str, int]) -> int:
    """The launches of a kernel's function at these sizes, by the names of its variables; others, of
    pages and ranges of keys, are larger than all of them."""
    more = 8 * max(sizes.values())
    count = 0

    def holds(condition: Any) -> bool:
        analyzer = tvm.sym.Analyzer()
        for symbol in tirx.analysis.undefined_vars(condition, []):
            analyzer.bind(symbol, tirx.IntImm("int64", sizes.get(symbol.name, more)))
        return bool(analyzer.simplify(condition).value)

    def visit(node: Any) -> None:
        nonlocal count
        if isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
            count += 1
        elif isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                visit(part)
        elif isinstance(node, tirx.IfThenElse):
            branch = node.then_case if holds(node.condition) else node.else_case
            if branch is not None:
                visit(branch)
        elif hasattr(node, "body"):
            visit(node.body)

    visit(kernel.body)
    return count


def layer(names: list[str]) -> list[str]:
    """Those of the layer before the last, from one `rotate_and_append` to the next."""
    *_, first, last = (i for i, name in enumerate(names) if name.startswith(_LAYER))
    return names[first:last]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="8b", choices=sorted(random_checkpoint.SHAPES))
    parser.add_argument("--quant", default="q4")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--layer", action="store_true")
    given = parser.parse_args()
    target = get_target("cuda", Choices(archs=("sm_90",)))
    for batch in given.batch:
        names = launches(given.shape, given.quant, target, batch)
        of_one = layer(names)
        print(f"{given.shape} {given.quant}, batch {batch}: {len(names)}, {len(of_one)} a layer")
        for name in of_one if given.layer else ():
            print(f"  {name}")


if __name__ == "__main__":
    main()
