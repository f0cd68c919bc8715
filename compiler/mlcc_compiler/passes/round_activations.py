"""Pass: lets norms, gated products and attention write their result as the next products multiply
it: rounded to float16, in the order of their weights' columns, or to 8-bit floats.

Only where all readers of a value are linear layers that take it so (`KernelSet.rounding`). Gate and
up are joined with their activation on the way: `mlcc.rounded_gated_linear`. Such a value is
u32[n, K / 2], and no kernel that would round it is launched.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import attribute, call_parts, dims, literal, tensor
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.rewrite import Rewriter

LINEAR = "mlcc.linear"
GATED, NORM, ADDED = "mlcc.gated_fused", "mlcc.rms_norm", "mlcc.add_rms_norm"
ATTENTION = {"mlcc.attention": -1, "mlcc.attention_qkv": -3}
"""Where their arguments have the layer's `AttentionShape`."""


class RoundActivations(Rewriter):
    """Rewrites the operators that make such values."""

    def __init__(self, module: ir.IRModule, kernels: KernelSet, entry: str = "") -> None:
        super().__init__(module, entry)
        assert kernels.rounding is not None
        self.rounding, self.rounds_parts = kernels.rounding, kernels.rounds_parts
        self.words, self.fits_heads = kernels.rounded_words, kernels.rounds_heads
        self.readers: dict[Any, list[Any]] = defaultdict(list)
        """The variable of a value -> the operators, or other expressions, that read it."""
        self.pairs: dict[Any, Any] = {}
        """The variable of an `ADDED` -> that of its norm."""
        self.inside: set[Any] = set()
        """Variables of products that are emitted with their activation."""
        self.flat: dict[Any, Any] = {}
        """The variable of an attention whose only reader is a reshape to rows -> the reshape's."""
        self.views: set[Any] = set()
        """Reshapes of rounded attention, which is in rows already."""

    def setup(self, function: relax.Function) -> list[relax.Var]:
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self.made = {binding.var: binding.value for binding in bindings}
        for value in (*self.made.values(), function.body.body):
            for variable in _variables(value):
                self.readers[variable].append(value)
        for variable, value in self.made.items():
            if isinstance(value, relax.TupleGetItem) and value.index == 1:
                self.pairs[value.tuple_value] = variable
            if _name(value) == "relax.reshape" and len(self.readers[value.args[0]]) == 1:
                self.flat[value.args[0]] = variable
            if _name(value) == GATED and self._in_parts(variable) and self._joined(value):
                self.inside.add(call_parts(value)[1][0])
        return list(function.params)

    def visit(self, binding: Any) -> None:
        if binding.var in self.inside:
            return  # emitted with its activation
        if binding.var in self.views:
            self.values[binding.var] = self.value(binding.value.args[0])
            return
        call = self._rounded(binding.var, binding.value)
        if call is None:
            super().visit(binding)
        else:
            self.values[binding.var] = self.builder.emit(call)

    def _rounded(self, variable: Any, value: Any) -> Any | None:
        """The operator that makes the value rounded; None = it stays."""
        name = _name(value)
        if name in ATTENTION:
            return self._rounded_attention(variable, value)
        if name not in (GATED, NORM, ADDED):
            return None
        of = self.pairs.get(variable) if name == ADDED else variable
        order = self._order(of) if of is not None else ""
        if not order:
            return None
        rows, width = dims(of)
        result = tensor([rows, self.words(order, width)], "uint32")
        _, arguments = call_parts(value)
        if arguments[0] in self.inside:
            product = call_parts(self.made[arguments[0]])[1]
            *given, schemes = [self.value(argument) for argument in product]
            given += [arguments[1], attribute(order), schemes]
            return relax.call_pure_packed("mlcc.rounded_gated_linear", *given, ty_args=result)
        given = [*(self.value(argument) for argument in arguments), attribute(order)]
        if name == ADDED:
            result = relax.TupleType([variable.ty.fields[0], result])
        rounded = {GATED: "gated", NORM: "rms_norm", ADDED: "add_rms_norm"}[name]
        return relax.call_pure_packed(f"mlcc.rounded_{rounded}", *given, ty_args=result)

    def _rounded_attention(self, variable: Any, call: relax.Call) -> Any | None:
        """Attention in rounded rows; None = it stays."""
        name, arguments = call_parts(call)
        at, rows = ATTENTION[name], self.flat.get(variable)
        shape = AttentionShape.from_json(str(literal(arguments[at])))
        order = "" if rows is None else self._order(rows)
        if not order or not self.fits_heads(order, shape.head_dim):
            return None
        self.views.add(rows)
        given = [self.value(argument) for argument in arguments]
        given[at] = attribute(replace(shape, rounded=order).to_json())
        count, width = dims(rows)
        result = tensor([count, self.words(order, width)], "uint32")
        return relax.call_pure_packed(name, *given, ty_args=result)

    def _order(self, variable: Any) -> str:
        """The order in which all readers of a value take it rounded; "" = they do not."""
        readers = self.readers[variable]
        if len(dims(variable)) != 2 or not readers:
            return ""
        for reader in readers:
            if _name(reader) != LINEAR or list(_variables(reader)).count(variable) != 1:
                return ""
        return self.rounding([self._weights(reader) for reader in readers])

    def _in_parts(self, variable: Any) -> bool:
        """Whether they do, and a kernel can write parts of its rows."""
        return self.rounds_parts(self._order(variable))

    def _joined(self, call: relax.Call) -> bool:
        """Whether gate and up are a linear layer that nothing else reads, with the activation at
        the end of both."""
        source = call_parts(call)[1][0]
        product = self.made.get(source)
        if _name(product) != LINEAR or len(self.readers[source]) != 1:
            return False
        weights = self._weights(product)
        even = len(weights) == 1 or [shape[0] for _, shape in weights] == [dims(source)[1] // 2] * 2
        return even and bool(self.rounding([weights]))

    def _weights(self, call: relax.Call) -> list[tuple[str, list[int]]]:
        """(scheme, [N, K]) of what a linear layer reads; neighbours of one scheme are one."""
        _, weight, *_, last = call_parts(call)[1]
        schemes, whole = str(literal(last)).split("+"), self.made.get(weight)
        parts = call_parts(whole)[1] if _name(whole) == "mlcc.concat_rows" else [weight]
        each = schemes * len(parts) if len(schemes) == 1 else schemes
        found = []
        for name, run in groupby(zip(each, parts, strict=True), lambda pair: pair[0]):
            shapes = [dims(part) for _, part in run]
            found.append((name, [sum(n for n, _ in shapes), shapes[0][1]]))
        return found


def _name(value: Any) -> str:
    return call_parts(value)[0] if isinstance(value, relax.Call) else ""


def _variables(value: Any) -> list[Any]:
    """The variables that an expression reads."""
    if isinstance(value, relax.Var):
        return [value]
    if isinstance(value, relax.TupleGetItem):
        return _variables(value.tuple_value)
    parts = value.fields if isinstance(value, relax.Tuple) else getattr(value, "args", ())
    return [variable for part in parts for variable in _variables(part)]
