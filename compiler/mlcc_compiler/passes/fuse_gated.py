"""Pass: fuses projections with their activation: gate and up into `mlcc.gated_linear`, one alone
into `mlcc.activated_linear`.

The product of many rows then writes activation(gate) * up, or activation(x), in the form that the
next projection reads, and the projections themselves, two or four times larger, are never written.
Only where all readers of the result are linear layers that read that form
(`KernelSet.fuses_gated`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import call_parts, calls, dims, literal
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.rewrite import Rewriter

LINEAR = "mlcc.linear"
FUSED = {"mlcc.gated_fused": "mlcc.gated_linear", "mlcc.activated": "mlcc.activated_linear"}
"""An activation of a linear layer's result -> both."""


class FuseGated(Rewriter):
    """`linear`, then one of `FUSED`, whose only readers are `linear` -> the fused one."""

    def __init__(self, module: ir.IRModule, kernels: KernelSet, entry: str = "") -> None:
        super().__init__(module, entry)
        self.fits = kernels.fuses_gated
        self.product_of: dict[Any, Any] = {}
        """The variable of an activation -> the call of the linear layer that it reads."""
        self.fused: set[Any] = set()
        """Variables of those linear layers."""

    def setup(self, function: relax.Function) -> list[relax.Var]:
        made = self.made = {
            b.var: b.value for block in function.body.blocks for b in block.bindings
        }
        readers: dict[Any, list[relax.Call]] = defaultdict(list)
        for call in calls(function):
            for argument in call_parts(call)[1]:
                if isinstance(argument, relax.Var):
                    readers[argument].append(call)
        for variable, call in made.items():
            if not any(_calls(call, name) for name in FUSED):
                continue
            source = call_parts(call)[1][0]
            product = made.get(source)
            if _calls(product, LINEAR) and len(readers[source]) == 1:
                self._note(variable, source, product, readers[variable])
        return list(function.params)

    def _note(self, variable: Any, source: Any, product: Any, readers: list[relax.Call]) -> None:
        if not readers or not all(_calls(reader, LINEAR) for reader in readers):
            return
        down = [name for reader in readers for name in _schemes(reader)]
        k, inner = (dims(of)[1] for of in (call_parts(product)[1][0], variable))
        schemes = _schemes(product)
        alone = _calls(self.made[variable], "mlcc.activated")
        if (len(schemes) == 1 or not alone) and self.fits(schemes, k, down, inner):
            self.product_of[variable] = product
            self.fused.add(source)

    def visit(self, binding: Any) -> None:
        if binding.var in self.fused:
            return  # emitted with its activation
        product = self.product_of.get(binding.var)
        if product is None:
            super().visit(binding)
            return
        _, (*arguments, schemes) = call_parts(product)
        name, (_, kind) = call_parts(binding.value)
        call = relax.call_pure_packed(
            FUSED[name],
            *(self.value(argument) for argument in arguments),
            kind,
            schemes,
            ty_args=binding.var.ty,
        )
        self.values[binding.var] = self.builder.emit(call)


def _calls(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and call_parts(value)[0] == name


def _schemes(call: relax.Call) -> list[str]:
    """The schemes of the weights that a linear layer reads."""
    return str(literal(call_parts(call)[1][-1])).split("+")
