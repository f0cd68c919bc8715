"""The kernels' own lists of passes make the code that TVM's makes."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir._tvm import ir, tirx, tvm
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.kernels.cpu.attention import attention
from mlcc_compiler.kernels.cpu.sampling import sample
from mlcc_compiler.kernels.frame import kernel_passes
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE, GPU_PIPELINE
from mlcc_compiler.options import Options
from mlcc_compiler.pipeline import LoweringConfig, lower, tvm_target, tvm_target_of
from mlcc_compiler.plan import Plan, make_plan
from mlcc_targets import Target, get_target
from tests.compiler.kernels.cases.attention import Case
from tests.compiler.kernels.cases.cpu_kernels import BEST
from tests.compiler.kernels.cases.step import LAYOUTS
from tests.compiler.models.helpers.mixed import bounds_of
from tests.helpers.demo_model import DEMO


def kernels(target: Target) -> ir.IRModule:
    """All kernels of the demo model's library."""
    plan: Plan = make_plan(
        Checkpoint.open(DEMO / "model"), target, Options(quant="q4", context=128)
    )
    kernel_set = kernel_set_for(target, plan.activation_bits or 8, plan.rounds_rows)
    config = LoweringConfig(
        target, kernel_set, plan.caches, bounds_of(plan), plan.config.vocab_size
    )
    functions = lower(plan.traced, config).module.functions
    return ir.IRModule({v: f for v, f in functions.items() if isinstance(f, tirx.PrimFunc)})


def text(module: ir.IRModule, target: Target, pipeline: str) -> str:
    with tvm_target(target):
        built = tvm.tirx.build(module, tvm_target_of(target), pipeline)
    return str(built.imports[0].inspect_source())


def test_the_text_is_that_of_tvms_passes() -> None:
    """To the letter. (WGSL differs in the order of addends.)"""
    target = get_target("metal")
    module = kernels(target)
    ours, theirs = (text(module, target, each) for each in (GPU_PIPELINE, "default"))
    assert ours.count("\n") > 5000
    assert ours == theirs


def test_objects_for_cpus_differ_in_single_instructions() -> None:
    """A sampler has the same code to the letter; of attention's, the order of addends of an index
    may differ, and with it what LLVM makes of some of them."""
    case = Case(heads=4, kv_heads=2, dim=32)
    sampler = sample.sample(BEST.isa, 1000, LAYOUTS[0])
    ours, theirs = (assembly(sampler, pipeline) for pipeline in (CPU_PIPELINE, "default"))
    assert ours == theirs
    attention_kernel = attention.paged_attention(BEST.isa, *case.arguments)
    ours, theirs = (assembly(attention_kernel, each) for each in (CPU_PIPELINE, "default"))
    assert abs(len(ours) - len(theirs)) < len(theirs) / 100


def assembly(kernel: Any, pipeline: str) -> str:
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in BEST.target}
    target = tvm.target.Target({"kind": "llvm", **options})
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
    with kernel_passes(cpu=True):
        return str(tvm.tirx.build(module, target, pipeline).inspect_source("asm"))
