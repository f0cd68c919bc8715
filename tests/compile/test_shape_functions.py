"""Sizes are computed in one order: TVM takes that of a hash table, which need not repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cli.tiny_checkpoint import write_checkpoint

from mlcc_compiler._tvm import tirx
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.passes.shape_functions import order_sizes
from mlcc_compiler.pipeline import Bounds, IrDump, lower
from mlcc_compiler.plan import Options, make_plan
from mlcc_targets import get_target


def slots(module: Any) -> dict[str, list[int]]:
    """Of each function with more than one store, the slots in order."""
    found = {
        v.name_hint: f.body for v, f in module.functions.items() if "shape_func" in v.name_hint
    }
    return {
        name: [int(store.indices[0]) for store in body.seq]
        for name, body in found.items()
        if isinstance(body, tirx.SeqStmt)
    }


def test_sizes_are_stored_in_the_order_of_their_slots(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    plan = make_plan(checkpoint, get_target("vulkan"), Options(quant="f32", context=64))
    kernels, bounds = kernel_set_for(plan.target), Bounds(plan.layout, plan.limits.context)
    vocab = plan.config.vocab_size
    lowered = lower(plan.traced, kernels, plan.caches, bounds, vocab, plan.target, IrDump(None))
    module = lowered.module
    ordered = slots(module)
    assert ordered and all(order == sorted(order) for order in ordered.values())
    for variable, function in list(module.functions.items()):
        if variable.name_hint in ordered:
            turned = tirx.SeqStmt(list(function.body.seq)[::-1])
            module[variable] = function.with_body(turned)
    assert slots(module) != ordered
    assert slots(order_sizes(module)) == ordered
