"""A library of two GPU kernels, built for a target row by the compiler's last phase.

Generating and linking it takes a tenth of a second.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcc_compiler import pipeline
from mlcc_compiler.ir._tvm import relax, tirx, tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import activation
from mlcc_targets import Target
from tools.packages import versioned

WIDTH = 64


def build(row: Target, library: Path) -> Path:
    """`forward(x, y)` = silu(x + y) * y on f32[n, WIDTH]; returns `library`."""
    gpu = Gpu.of(row)
    sizes = (WIDTH,)
    kernels = activation.add(gpu, sizes, sizes), activation.gated(gpu, sizes, sizes, "silu")
    library.parent.mkdir(exist_ok=True)
    pipeline.build(lowered(kernels, row), row, library)
    return library


def lowered(kernels: Sequence[Any], row: Target) -> pipeline.Lowered:
    """A chain of kernels (x, y) -> x as a function ready for code generation."""
    ty = relax.TensorType((tirx.Var("n", "int64"), WIDTH), "float32")
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    builder = relax.BlockBuilder()
    with builder.function("forward", [x, y]):
        with builder.dataflow():
            last = x
            for i, kernel in enumerate(kernels):
                name = builder.add_func(kernel, f"kernel_{i}")
                last = builder.emit(relax.call_tir(name, [last, y], ty))
            result = builder.emit_output(last)
        builder.emit_func_output(result)
    module = builder.get()
    module["forward"] = module["forward"].with_attr("tir_var_upper_bound", {"n": 512})
    plan = relax.transform.StaticPlanBlockMemory()
    allocate = relax.transform.LowerAllocTensor()
    passes = [*pipeline._flatten_passes(), plan, allocate, *pipeline._finish_passes()]
    with pipeline.tvm_target_of(row):
        return pipeline.Lowered(tvm.transform.Sequential(passes)(module), [], 0, ("forward",))


def find(tool: str) -> str | None:
    """An object tool's path; Debian names some by LLVM's version only."""
    return next(filter(None, map(shutil.which, (tool, *versioned(tool)))), None)


def inspect(tool: str, *arguments: object) -> str:
    """The output of an object tool of LLVM."""
    command = [find(tool) or tool, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
