"""Pass: every `mlcc.*` operator becomes calls of the target's kernels.

With it the weights change from what a checkpoint holds to what the kernels read: the pass returns
a `WeightPlan` per tensor of the checkpoint, which says how it is quantized, packed and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import ir, relax
from mlcc_compiler.kernels.kernel_set import KernelSet, WeightLayout
from mlcc_compiler.passes.rewrite import Rewriter, call_parts, dims, literal, tensor


@dataclass(frozen=True)
class WeightPlan:
    """One tensor of the checkpoint: logical `shape`, quantized by `scheme`, stored as `layout`."""

    name: str
    shape: tuple[int, ...]
    use: str
    """'matrix' (a linear reads it), 'table' (only looked up) or 'vector'."""
    scheme: str
    layout: WeightLayout

    def names(self) -> list[str]:
        """Names of the physical tensors in the artifact."""
        return [f"{self.name}{part.suffix}" for part in self.layout.tensors]


class LowerOperators(Rewriter):
    """`names`: the checkpoint's tensors in the order of the packed parameter."""

    def __init__(self, module: ir.IRModule, kernels: KernelSet, names: list[str]) -> None:
        super().__init__(module)
        self.kernels, self.names = kernels, names
        self.plans: list[WeightPlan] = []
        self.physical: dict[int, list[relax.Var]] = {}
        self.quantized_rows: dict[Any, Any] = {}

    # -- weights ---------------------------------------------------------------------------------

    def setup(self, function: relax.Function) -> list[relax.Var]:
        *inputs, self.old_weights = function.params
        self.plans = self._plan(function)
        types = [
            tensor(part.shape, part.dtype) for plan in self.plans for part in plan.layout.tensors
        ]
        self.weights = relax.Var("weights", relax.TupleType(types))
        return [*inputs, self.weights]

    def _plan(self, function: relax.Function) -> list[WeightPlan]:
        """How each weight is stored, from how the graph uses it."""
        shapes = [tuple(int(d) for d in f.shape.values) for f in self.old_weights.ty.fields]
        uses = ["vector"] * len(shapes)
        schemes = ["f32"] * len(shapes)
        index_of: dict[Any, int] = {}
        for block in function.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.TupleGetItem):
                    if value.tuple_value.same_as(self.old_weights):
                        index_of[binding.var] = value.index
                elif isinstance(value, relax.Call):
                    self._note_use(value, index_of, uses, schemes)
        rows = zip(self.names, shapes, uses, schemes, strict=True)
        return [WeightPlan(n, s, u, q, self.kernels.layout(u, s, q)) for n, s, u, q in rows]

    def _note_use(
        self, call: relax.Call, index_of: dict[Any, int], uses: list[str], schemes: list[str]
    ) -> None:
        name, arguments = call_parts(call)
        if name not in ("mlcc.linear", "mlcc.embedding"):
            return
        index = index_of[arguments[1]]
        schemes[index] = str(literal(arguments[-1]))
        if name == "mlcc.linear" or uses[index] == "vector":
            uses[index] = "matrix" if name == "mlcc.linear" else "table"

    def tuple_item(self, expr: relax.TupleGetItem) -> Any:
        if not expr.tuple_value.same_as(self.old_weights):
            return super().tuple_item(expr)
        first = sum(len(plan.layout.tensors) for plan in self.plans[: expr.index])
        count = len(self.plans[expr.index].layout.tensors)
        parts = [
            self.builder.emit(relax.TupleGetItem(self.weights, first + i)) for i in range(count)
        ]
        return Weight(self.plans[expr.index], parts)

    def visit(self, binding: Any) -> None:
        value = self.rewrite(binding.value)
        if not isinstance(value, (relax.Var, Weight)):
            value = self.builder.emit(value)
        self.values[binding.var] = value

    # -- operators -------------------------------------------------------------------------------

    def op_linear(self, arguments: list[Any], call: relax.Call) -> Any:
        x, weight, *bias = arguments[:-1]
        return self.kernels.linear(self, x, weight, bias[0].vector if bias else None)

    def op_embedding(self, arguments: list[Any], call: relax.Call) -> Any:
        token_ids, table = arguments[:2]
        return self.kernels.embedding(self, token_ids, table)

    def op_rms_norm(self, arguments: list[Any], call: relax.Call) -> Any:
        x, weight, eps, offset = arguments
        kernel = self.kernels.rms_norm(dims(x)[1:], float(literal(eps)), float(literal(offset)))
        return self.call_tir(kernel, "rms_norm", [x, weight.vector], call.ty_args[0])

    def op_add_rms_norm(self, arguments: list[Any], call: relax.Call) -> Any:
        x, residual, weight, eps, offset = arguments
        width = dims(x)[1]
        kernel = self.kernels.add_rms_norm(width, float(literal(eps)), float(literal(offset)))
        inputs = [x, residual, weight.vector]
        return self.call_tir(kernel, "add_rms_norm", inputs, list(call.ty_args[0].fields))

    def op_rope_table(self, arguments: list[Any], call: relax.Call) -> Any:
        positions, inv_freq, scale = arguments
        kernel = self.kernels.rope_table(2 * dims(inv_freq)[0], float(literal(scale)))
        return self.call_tir(kernel, "rope_table", [positions, inv_freq], call.ty_args[0])

    def op_rope(self, arguments: list[Any], call: relax.Call) -> Any:
        x, table = arguments
        _, heads, head_dim = dims(x)
        kernel = self.kernels.rope(heads, head_dim, dims(table)[1])
        return self.call_tir(kernel, "rope", [x, table], call.ty_args[0])

    def op_gated(self, arguments: list[Any], call: relax.Call) -> Any:
        gate, up, kind = arguments
        kernel = self.kernels.gated(dims(gate)[1], str(literal(kind)))
        return self.call_tir(kernel, "gated", [gate, up], call.ty_args[0])

    def op_gated_fused(self, arguments: list[Any], call: relax.Call) -> Any:
        gate_up, kind = arguments
        kernel = self.kernels.gated_fused(dims(gate_up)[1] // 2, str(literal(kind)))
        return self.call_tir(kernel, "gated_fused", [gate_up], call.ty_args[0])

    def op_softcap(self, arguments: list[Any], call: relax.Call) -> Any:
        x, cap = arguments
        kernel = self.kernels.softcap(dims(x)[1], float(literal(cap)))
        return self.call_tir(kernel, "softcap", [x], call.ty_args[0])

    def relax_add(self, arguments: list[Any], call: relax.Call) -> Any:
        x, y = arguments
        return self.call_tir(self.kernels.add(dims(x)[1]), "add", [x, y], x.ty)

    def relax_multiply(self, arguments: list[Any], call: relax.Call) -> Any:
        x, factor = arguments
        kernel = self.kernels.scale(dims(x)[1], float(factor.value.numpy()))
        return self.call_tir(kernel, "scale", [x], x.ty)

    def op_take_rows(self, arguments: list[Any], call: relax.Call) -> Any:
        x, rows = arguments
        return self.call_tir(
            self.kernels.take_rows(dims(x)[1]), "take_rows", [x, rows], call.ty_args[0]
        )


@dataclass(frozen=True)
class Weight:
    """A weight in the new graph: its plan and the variables of its physical tensors."""

    plan: WeightPlan
    parts: list[relax.Var]

    @property
    def vector(self) -> relax.Var:
        """The only tensor of an unquantized vector."""
        (part,) = self.parts
        return part
