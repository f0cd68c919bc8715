"""Pass: merges projections of one input into one product over their concatenated matrices.

`q`, `k`, `v` with their norms and rotations become `mlcc.attention_qkv`, which reads them from one
array; `gate` and `up` become `mlcc.gated_fused`; a model's explicit `side_by_side` is one product
at once. One launch reads x once, instead of three or two. The merged matrix is `mlcc.concat_rows
(weights...)`, its scheme those of its members joined by "+"; how it is stored is decided when
operators are lowered. Graphs that do not match are left unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import attribute, call_parts, dims, dtype_of, is_call, literal, tensor
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.rewrite import Rewriter
from mlcc_compiler.passes.unused import DropUnused


@dataclass(frozen=True)
class Projection:
    """One linear in the old graph: x @ weight.T + bias."""

    x: Any
    weight: Any
    bias: Any | None
    scheme: str


@dataclass(frozen=True)
class Head:
    """A q, k or v operand of attention: projected, optionally normalised, optionally rotated."""

    projected: Any
    """[n, heads * head_dim] in the old graph."""
    norm: tuple[Any, float, float] | None
    """(weight, eps, offset)."""
    table: Any | None


class MergeProjections(Rewriter):
    """The kernel set decides which of the two merges apply, and which schemes share a product."""

    def __init__(self, module: ir.IRModule, kernels: KernelSet, entry: str = "") -> None:
        super().__init__(module, entry)
        self.wants_qkv, self.wants_gate_up = (name in kernels.merges for name in ("qkv", "gate_up"))
        self.shares_product = kernels.shares_product
        self.old: dict[Any, Any] = {}

    def run(self) -> ir.IRModule:
        """The rewritten module, without bindings that became unused."""
        return DropUnused(super().run(), self.entry).run()

    def setup(self, function: relax.Function) -> list[relax.Var]:
        self.old = {b.var: b.value for block in function.body.blocks for b in block.bindings}
        return list(function.params)

    def visit(self, binding: Any) -> None:
        merged = self._merged(binding.value) if isinstance(binding.value, relax.Call) else None
        if merged is None:
            super().visit(binding)
        else:
            is_there = isinstance(merged, relax.Var)
            self.values[binding.var] = merged if is_there else self.builder.emit(merged)

    def _merged(self, call: relax.Call) -> Any | None:
        name, arguments = call_parts(call)
        if name == "mlcc.gated" and self.wants_gate_up:
            return self._gated(arguments, call)
        if name == "mlcc.attention" and self.wants_qkv:
            return self._attention(arguments, call)
        if name == "mlcc.side_by_side" and self.wants_qkv:
            return self._joined(arguments)
        return None

    # -- gate and up -----------------------------------------------------------------------------

    def _gated(self, arguments: list[Any], call: relax.Call) -> Any | None:
        gate, up, kind = arguments
        joined = self._joined([gate, up])
        if joined is None:
            return None
        return relax.call_pure_packed("mlcc.gated_fused", joined, kind, ty_args=call.ty_args[0])

    # -- q, k and v ------------------------------------------------------------------------------

    def _attention(self, arguments: list[Any], call: relax.Call) -> Any | None:
        *found, _, _ = arguments
        if len(found) != 3:
            return None  # with sinks
        heads = [self._head(value) for value in found]
        if any(head is None for head in heads):
            return None
        q, k, v = (head for head in heads if head is not None)
        norms = (q.norm, k.norm)
        if q.table is None or k.table is None or not q.table.same_as(k.table):
            return None
        if v.table is not None or v.norm or (q.norm is None) != (k.norm is None):
            return None
        if q.norm and k.norm and q.norm[1:] != k.norm[1:]:
            return None
        joined = self._joined([q.projected, k.projected, v.projected])
        if joined is None:
            return None
        weights = [self.value(norm[0]) for norm in norms if norm]
        eps, offset = q.norm[1:] if q.norm else (0.0, 0.0)
        attributes = [*arguments[3:], attribute(eps), attribute(offset)]
        return relax.call_pure_packed(
            "mlcc.attention_qkv",
            joined,
            self.value(q.table),
            relax.Tuple(weights),
            *attributes,
            ty_args=call.ty_args[0],
        )

    def _head(self, value: Any) -> Head | None:
        """Walk back from attention's argument to its projection; None if the pattern does not
        match."""
        table = norm = None
        if (call := self._call(value, "mlcc.rope")) is not None:
            value, table, pairs = call
            if literal(pairs):
                return None  # kernels of merged projections turn halves
        if (call := self._call(value, "mlcc.rms_norm")) is not None:
            value, weight, eps, offset = call
            norm = (weight, float(literal(eps)), float(literal(offset)))
        reshape: Any = self.old.get(value)
        if not is_call(reshape, "relax.reshape"):
            return None
        return Head(reshape.args[0], norm, table)

    def _call(self, value: Any, name: str) -> list[Any] | None:
        """The arguments of the old call that computed `value`, if it calls `name`."""
        call = self.old.get(value)
        if not isinstance(call, relax.Call):
            return None
        found, arguments = call_parts(call)
        return arguments if found == name else None

    # -- one product -----------------------------------------------------------------------------

    def _joined(self, parts: list[Any]) -> Any | None:
        """One array with the `parts` side by side: the array they were split from, or a merged
        product."""
        whole = self._was_split(parts)
        if whole is not None:
            return self.value(whole)
        rows = [self._projection(part) for part in parts]
        found = [row for row in rows if row is not None]
        first = found[0] if len(found) == len(parts) else None
        if first is None or not all(_alike(first, row) for row in found):
            return None
        schemes = [row.scheme for row in found]
        if not self.shares_product(schemes, dims(first.x)[1]):
            return None
        weight = self._concat([row.weight for row in found])
        bias = [] if first.bias is None else [self._concat([row.bias for row in found])]
        width = sum(dims(part)[1] for part in parts)
        return self.builder.emit(
            relax.call_pure_packed(
                "mlcc.linear",
                self.value(first.x),
                weight,
                *bias,
                attribute("+".join(schemes)),
                ty_args=tensor([dims(parts[0])[0], width], dtype_of(parts[0])),
            )
        )

    def _was_split(self, parts: list[Any]) -> Any | None:
        """The array whose columns are exactly the `parts`, in order (Phi-3's qkv_proj)."""
        items: list[Any] = [self.old.get(part) for part in parts]
        if not all(isinstance(item, relax.TupleGetItem) for item in items):
            return None
        split: Any = self.old.get(items[0].tuple_value)
        same = all(item.tuple_value.same_as(items[0].tuple_value) for item in items)
        ordered = [item.index for item in items] == list(range(len(parts)))
        if not (same and ordered and is_call(split, "relax.split")):
            return None
        whole = split.args[0]
        return whole if sum(dims(p)[1] for p in parts) == dims(whole)[1] else None

    def _projection(self, value: Any) -> Projection | None:
        call = self._call(value, "mlcc.linear")
        if call is None:
            return None
        x, weight, *bias, scheme = call
        return Projection(x, weight, bias[0] if bias else None, str(literal(scheme)))

    def _concat(self, weights: list[Any]) -> Any:
        shapes = [dims(weight) for weight in weights]
        shape = [sum(s[0] for s in shapes), *shapes[0][1:]]
        values = [self.value(weight) for weight in weights]
        return self.builder.emit(
            relax.call_pure_packed(
                "mlcc.concat_rows", *values, ty_args=tensor(shape, dtype_of(weights[0]))
            )
        )


def _alike(a: Projection, b: Projection) -> bool:
    return a.x.same_as(b.x) and (a.bias is None) == (b.bias is None)
