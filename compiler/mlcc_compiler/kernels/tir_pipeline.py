"""TVM's passes from a kernel to host code and device code: `GPU_PIPELINE` and `CPU_PIPELINE`.

TVM's own list for schedulable kernels, without the passes that find nothing in our kernels:
software pipelines, virtual threads, asynchronous copies, Hexagon's memory, float8, buffers larger
than what is used of them, conditions to hoist, statements without effect. Looking for these took
more than half of a compile.

`FlattenBuffer` is cheaper here. It looks for a fused or split iterator in every index, which took a
third of a GPU's passes and half of a CPU's; `StmtSimplify`, which follows, finds the same. CUDA's
and Metal's text is the same to the letter, WGSL's but for the order of addends and the numbers of
common subexpressions.

On a CPU, LLVM simplifies indices and finds common subexpressions itself: objects with and without
TVM's passes for these differ in single instructions. `StorageRewrite` fails there on simplified
indices: it makes buffers of vectors, and then an And of operands that are no bool (SSE2, NEON).

Kernels of a CPU do not check the types and shapes of their arguments: a library's functions check
caches and the arrays of a step (`VMShapeLower`), weights are compared with the manifest where they
are located (`mlcc.artifact.folder`), and the library holds the manifest's hash. Checks in every
kernel, with a message each, were a fifth of a library's instructions.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import register_tir_pipeline, s_tir, tir_pipeline, tirx, tvm
from mlcc_compiler.kernels.called_functions import add_functions, align_arrays
from mlcc_compiler.kernels.dependent_launch import dependent_launches

GPU_PIPELINE = "mlcc_gpu"
"""The name under which `tvm.compile` and `relax.build` find it."""
CPU_PIPELINE = "mlcc_cpu"
"""Likewise."""


def _gpu_passes() -> list[Any]:
    scheduled, plain = s_tir.transform, tirx.transform
    return [
        *_block_passes(),
        scheduled.UnifyThreadBinding(),
        scheduled.StmtSimplify(),
        *_flat_passes(),
        plain.StorageRewrite(),
        plain.UnrollLoop(),
        scheduled.RenormalizeSplitPattern(),
        plain.StmtSimplify(),
        scheduled.RewriteUnsafeSelect(),
        plain.CommonSubexprElim(),
        plain.VerifyMemory(),
        plain.AnnotateEntryFunc(),
        scheduled.ThreadSync("shared"),
        scheduled.ThreadSync("shared.dyn"),
        scheduled.ThreadSync("warp"),
        scheduled.InferFragment(),
        scheduled.LowerThreadAllreduce(),
        scheduled.MergeSharedMemoryAllocations(),
        plain.SplitHostDevice(),
        plain.MakePackedAPI(),
        plain.BF16StorageLegalize(),
        dependent_launches(),
    ]


def cpu_passes() -> list[Any]:
    """The passes of `CPU_PIPELINE`, but for TVM's last ones."""
    scheduled, plain = s_tir.transform, tirx.transform
    return [
        add_functions(),
        *_block_passes(),
        *_flat_passes(),
        align_arrays(),
        plain.UnrollLoop(),
        scheduled.RewriteUnsafeSelect(),
        plain.AnnotateEntryFunc(),
        plain.SplitHostDevice(),
        plain.MakePackedAPI(),
        plain.SkipAssert(),
        plain.BF16StorageLegalize(),
    ]


def _block_passes() -> list[Any]:
    """From a kernel's blocks to opaque ones."""
    scheduled = s_tir.transform
    return [
        scheduled.CanonicalizeLoop(),
        scheduled.LowerInitBlock(),
        scheduled.PlanAndUpdateBufferAllocationLocation(),
        scheduled.ConvertBlocksToOpaque(),
    ]


def _flat_passes() -> list[Any]:
    """From blocks and buffers of several dimensions to loops and flat buffers."""
    plain = tirx.transform
    return [
        s_tir.transform.LowerOpaqueBlock(),
        _add_guard(),
        plain.FlattenBuffer(),
        _remove_guard(),
        plain.BF16ComputeLegalize(),
        plain.NarrowDataType(32),
        plain.VectorizeLoop(True),
    ]


def _pipeline(passes: list[Any]) -> tuple[Any, Any, Any]:
    """The passes, and TVM's last ones over the host's functions and the device's."""
    _, finish_host, finish_device = tir_pipeline("default")
    return tvm.transform.Sequential(passes), finish_host, finish_device


def _add_guard() -> Any:
    """A first loop whose extent depends on another's variable: where there is one, the pass that
    flattens buffers leaves indices as they are."""

    @tirx.transform.prim_func_pass(opt_level=0)
    def add(function: Any, module: Any, context: Any) -> Any:
        outer, inner = tirx.Var("outer", "int32"), tirx.Var("inner", "int32")
        nothing = tirx.Evaluate(tirx.const(0, "int32"))
        guard = _loop(outer, tirx.const(2, "int32"), _loop(inner, outer + 1, nothing))
        return function.with_body(tirx.SeqStmt([guard, function.body]))

    return add


def _loop(variable: Any, extent: Any, body: Any) -> Any:
    return tirx.For(variable, tirx.const(0, "int32"), extent, tirx.ForKind.SERIAL, body)


def _remove_guard() -> Any:
    @tirx.transform.prim_func_pass(opt_level=0)
    def remove(function: Any, module: Any, context: Any) -> Any:
        rest = [statement for statement in function.body.seq if not _is_guard(statement)]
        return function.with_body(rest[0] if len(rest) == 1 else tirx.SeqStmt(rest))

    return remove


def _is_guard(statement: Any) -> bool:
    """Whether it is a loop of loops of nothing, which no kernel has."""
    inner = statement.body if isinstance(statement, tirx.For) else None
    return isinstance(inner, tirx.For) and isinstance(inner.body, tirx.Evaluate)


register_tir_pipeline(GPU_PIPELINE, lambda: _pipeline(_gpu_passes()))
register_tir_pipeline(CPU_PIPELINE, lambda: _pipeline(cpu_passes()))
