"""The GPU kernels' own list of passes makes the code that TVM's makes."""

from __future__ import annotations

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir._tvm import ir, tirx, tvm
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.options import Options
from mlcc_compiler.pipeline import LoweringConfig, lower, tvm_target_of
from mlcc_compiler.plan import Plan, make_plan
from mlcc_targets import Target, get_target
from tests.compiler.models.helpers.mixed import bounds_of
from tests.helpers.demo_model import DEMO


def kernels(target: Target) -> ir.IRModule:
    """All kernels of the demo model's library."""
    plan: Plan = make_plan(
        Checkpoint.open(DEMO / "model"), target, Options(quant="q4", context=128)
    )
    kernel_set = kernel_set_for(target, plan.activation_bits, plan.rounds_rows)
    config = LoweringConfig(
        target, kernel_set, plan.caches, bounds_of(plan), plan.config.vocab_size
    )
    functions = lower(plan.traced, config).module.functions
    return ir.IRModule({v: f for v, f in functions.items() if isinstance(f, tirx.PrimFunc)})


def text(module: ir.IRModule, target: Target, pipeline: str) -> str:
    with tvm_target_of(target):
        built = tvm.tirx.build(module, tvm_target_of(target), pipeline)
    return str(built.imports[0].inspect_source())


@pytest.mark.long  # kernels' results are tested by their own tests: this is for another TVM
def test_the_text_is_that_of_tvms_passes() -> None:
    """To the letter. (WGSL differs in the order of addends.)"""
    target = get_target("metal")
    module = kernels(target)
    ours, theirs = (text(module, target, each) for each in (GPU_PIPELINE, "default"))
    assert ours.count("\n") > 5000
    assert ours == theirs
