"""The only import of TVM's compiler modules: TVM renames things every few months, and only this
file changes.
"""

from typing import Any

from mlcc_targets.tvm_import import importing_tvm

with importing_tvm():
    import tvm
    import tvm_ffi
    from tvm import ir, relax, s_tir, tirx
    from tvm.relax.frontend import nn
    from tvm.script import tirx as T
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.compilation_pipeline import get_tir_pipeline as tir_pipeline
    from tvm.tirx.compilation_pipeline import register_tir_pipeline
    from tvm.tirx.script import builder as B

Tensor = Any
"""A tensor of the module front end; TVM ships no types."""

__all__ = [
    "B",
    "IRBuilder",
    "T",
    "Tensor",
    "ir",
    "nn",
    "register_tir_pipeline",
    "relax",
    "s_tir",
    "tir_pipeline",
    "tirx",
    "tvm",
    "tvm_ffi",
]
