"""Pass: fuses a residual sum and the norm that reads it into `mlcc.add_rms_norm`.

The sum is read and written once instead of twice. Other readers of the sum take it from the pair.
Knows graphs, not kernels.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import call_parts, is_call
from mlcc_compiler.passes.rewrite import Rewriter


class FuseAddNorm(Rewriter):
    """`add` then `rms_norm` over the whole row -> (sum, normed)."""

    def __init__(self, module: ir.IRModule, entry: str = "") -> None:
        super().__init__(module, entry)
        self.norm_of: dict[Any, Any] = {}
        """A sum's variable -> the binding of the first norm that reads it."""
        self.fused: set[Any] = set()

    def setup(self, function: relax.Function) -> list[relax.Var]:
        sums = set()
        for block in function.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if is_call(value, "relax.add"):
                    sums.add(binding.var)
                elif isinstance(value, relax.Call):
                    name, arguments = call_parts(value)
                    if name == "mlcc.rms_norm" and arguments[0] in sums:
                        self.norm_of.setdefault(arguments[0], binding)
        return list(function.params)

    def visit(self, binding: Any) -> None:
        if binding.var in self.fused:
            return  # emitted with its sum
        norm = self.norm_of.get(binding.var)
        if norm is None:
            super().visit(binding)
            return
        x, residual = (self.value(argument) for argument in binding.value.args)
        _, (_, weight, eps, offset) = call_parts(norm.value)
        kind = relax.TupleType([binding.var.ty, norm.var.ty])
        arguments = [x, residual, self.value(weight), eps, offset]
        call = relax.call_pure_packed("mlcc.add_rms_norm", *arguments, ty_args=kind)
        pair = self.builder.emit(call)
        self.values[binding.var], self.values[norm.var] = self.items(pair, 2)
        self.fused.add(norm.var)
