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
    """One weight: logical `shape`, quantized by `scheme`, stored as `layout`."""

    sources: tuple[str, ...]
    """Names of the model's tensors whose rows, one below the other, are this weight."""
    shape: tuple[int, ...]
    use: str
    """'matrix' (a linear reads it), 'table' (only looked up) or 'vector'."""
    scheme: str
    layout: WeightLayout

    @property
    def name(self) -> str:
        """In the artifact: the sources' own, or what they share with their differences joined."""
        if len(self.sources) == 1:
            return self.sources[0]
        parts = [name.split(".") for name in self.sources]
        columns = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
        return ".".join("+".join(column) for column in columns)

    def names(self) -> list[str]:
        """Names of the physical tensors in the artifact."""
        return [f"{self.name}{part.suffix}" for part in self.layout.tensors]


class LowerOperators(Rewriter):
    """`names`: the checkpoint's tensors in the order of the packed parameter."""

    def __init__(self, module: ir.IRModule, kernels: KernelSet, names: list[str]) -> None:
        super().__init__(module)
        self.kernels, self.names = kernels, names
        self.plans: list[WeightPlan] = []
        self.plan_of: dict[tuple[int, ...], int] = {}
        """Indices of a weight's members among the old weights -> its plan's."""
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
        """How each weight is stored, from how the graph uses it; merged ones are one weight."""
        shapes = [tuple(int(d) for d in f.shape.values) for f in self.old_weights.ty.fields]
        uses = _Uses(self.old_weights, len(shapes))
        for block in function.body.blocks:
            for binding in block.bindings:
                uses.note(binding)
        plans: list[WeightPlan] = []
        for members in uses.groups():
            use, scheme = uses.uses[members[0]], uses.schemes[members[0]]
            rows = sum(shapes[i][0] for i in members)
            shape = (rows, *shapes[members[0]][1:])
            layout = self.kernels.layout(use, shape, scheme)
            names = tuple(self.names[i] for i in members)
            self.plan_of[members] = len(plans)
            plans.append(WeightPlan(names, shape, use, scheme, layout))
        return plans

    def tuple_item(self, expr: relax.TupleGetItem) -> Any:
        if not expr.tuple_value.same_as(self.old_weights):
            return super().tuple_item(expr)
        members = (int(expr.index),)
        return self._weight(members) if members in self.plan_of else Member(members[0])

    def op_concat_rows(self, arguments: list[Any], call: relax.Call) -> Any:
        return self._weight(tuple(argument.index for argument in arguments))

    def _weight(self, members: tuple[int, ...]) -> Weight:
        place = self.plan_of[members]
        plan = self.plans[place]
        first = sum(len(earlier.layout.tensors) for earlier in self.plans[:place])
        parts = [
            self.builder.emit(relax.TupleGetItem(self.weights, first + i))
            for i in range(len(plan.layout.tensors))
        ]
        return Weight(plan, parts)

    def visit(self, binding: Any) -> None:
        value = self.rewrite(binding.value)
        if not isinstance(value, (relax.Var, Weight, Member)):
            value = self.builder.emit(value)
        self.values[binding.var] = value

    def value(self, expr: Any) -> Any:
        """Arguments of kernels that are called already (paging's) take a norm's weight as it is."""
        if isinstance(expr, relax.Tuple):
            fields = [self.value(item) for item in expr.fields]
            return relax.Tuple([f.vector if isinstance(f, Weight) else f for f in fields])
        return super().value(expr)

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


@dataclass(frozen=True)
class Member:
    """A weight of the old graph that is part of a merged one."""

    index: int


class _Uses:
    """What the graph does with each weight: its use, its scheme, and with which it is merged."""

    def __init__(self, weights: Any, count: int) -> None:
        self.weights = weights
        self.uses = ["vector"] * count
        self.schemes = ["f32"] * count
        self.members: dict[Any, tuple[int, ...]] = {}
        """A variable -> the weights it stands for."""
        self.merged: set[tuple[int, ...]] = set()

    def note(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            if value.tuple_value.same_as(self.weights):
                self.members[binding.var] = (int(value.index),)
            return
        if not isinstance(value, relax.Call):
            return
        name, arguments = call_parts(value)
        if name == "mlcc.concat_rows":
            group = tuple(i for a in arguments for i in self.members[a])
            self.members[binding.var] = group
            self.merged.add(group)
        elif name in ("mlcc.linear", "mlcc.embedding"):
            for index in self.members[arguments[1]]:
                self.schemes[index] = str(literal(arguments[-1]))
                if name == "mlcc.linear" or self.uses[index] == "vector":
                    self.uses[index] = "matrix" if name == "mlcc.linear" else "table"

    def groups(self) -> list[tuple[int, ...]]:
        """Every weight once, alone or with those it is merged with, in the order of the first."""
        inside = {index for group in self.merged for index in group}
        alone = [(i,) for i in range(len(self.uses)) if i not in inside]
        return sorted([*alone, *self.merged])
