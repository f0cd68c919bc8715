"""Pass: lowers every `mlcc.*` operator to calls of the target's kernels.

The weights change from the checkpoint's tensors to what the kernels read: the pass returns a
`WeightPlan` per weight, which says how it is quantized, packed and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import (
    PREFIX,
    Merged,
    Weight,
    attribute,
    call_parts,
    dims,
    is_attribute,
    literal,
    sizes,
    tensor,
    traced_entries,
)
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.models.ops import READS
from mlcc_compiler.passes.rewrite import Rewriter


class LowerOperators(Rewriter):
    """`names`: the checkpoint's tensors in the order of the packed parameter. `planned`: the
    lowering of an earlier function over the same weights, which are then stored as that decided."""

    def __init__(
        self,
        module: ir.IRModule,
        kernels: KernelSet,
        names: list[str],
        entry: str = "",
        planned: LowerOperators | None = None,
    ) -> None:
        super().__init__(module, entry)
        self.kernels, self.names, self.planned = kernels, names, planned
        self.plans: list[WeightPlan] = []
        self.plans_of: dict[tuple[int, ...], list[int]] = {}
        """Indices of a weight's members among the old weights -> its plans': one, or as many as
        schemes follow one another where merged members differ."""

    # -- weights ---------------------------------------------------------------------------------

    def setup(self, function: relax.Function) -> list[relax.Var]:
        *inputs, self.old_weights = function.params
        if self.planned is None:
            functions = [self.module[name] for name in traced_entries(self.module)]
            self.plans = self._plan(functions)
        else:
            self.plans, self.plans_of = self.planned.plans, self.planned.plans_of
        types = [
            tensor(part.shape, part.dtype) for plan in self.plans for part in plan.layout.tensors
        ]
        self.weights = relax.Var("weights", relax.TupleType(types))
        return [*inputs, self.weights]

    def _plan(self, functions: Sequence[relax.Function]) -> list[WeightPlan]:
        """Layout of each weight, from its use in the graphs; merged ones are one weight."""
        shapes = [tuple(int(d) for d in f.shape.values) for f in self.old_weights.ty.fields]
        uses = _Uses(len(shapes))
        for function in functions:
            uses.note_all(function)
        plans: list[WeightPlan] = []
        for members in uses.groups():
            self.plans_of[members] = []
            for run in uses.runs(members):
                self.plans_of[members].append(len(plans))
                plans.append(self._plan_of(run, uses, shapes))
        return plans

    def _plan_of(
        self, members: tuple[int, ...], uses: _Uses, shapes: list[tuple[int, ...]]
    ) -> WeightPlan:
        use, scheme = uses.uses[members[0]], uses.schemes[members[0]]
        rows, *row = shapes[members[0]]
        if use == "experts":
            shape = (len(members), rows, *row)
        else:
            shape = (sum(shapes[i][0] for i in members), *row)
        layout = self.kernels.layout(use, shape, scheme)
        return WeightPlan(tuple(self.names[i] for i in members), shape, use, scheme, layout)

    def tuple_item(self, expr: relax.TupleGetItem) -> Any:
        if not expr.tuple_value.same_as(self.old_weights):
            return super().tuple_item(expr)
        members = (int(expr.index),)
        return self._weight(members) if members in self.plans_of else Member(members[0])

    def op_concat_rows(self, arguments: list[Any], call: relax.Call) -> Any:
        return self._weight(tuple(argument.index for argument in arguments))

    def _weight(self, members: tuple[int, ...]) -> Weight | Merged:
        found = [self._stored(place) for place in self.plans_of[members]]
        return found[0] if len(found) == 1 else Merged(tuple(found))

    def _stored(self, place: int) -> Weight:
        plan = self.plans[place]
        first = sum(len(earlier.layout.tensors) for earlier in self.plans[:place])
        parts = [
            self.builder.emit(relax.TupleGetItem(self.weights, first + i))
            for i in range(len(plan.layout.tensors))
        ]
        return Weight(plan, parts)

    def visit(self, binding: Any) -> None:
        value = self.rewrite(binding.value)
        if not isinstance(value, (relax.Var, Weight, Merged, Member)):
            value = self.builder.emit(value)
        self.values[binding.var] = value

    def value(self, expr: Any) -> Any:
        """Kernels that were emitted earlier (by paging) take a norm's weight unpacked."""
        if isinstance(expr, relax.Tuple):
            fields = [self.value(item) for item in expr.fields]
            return relax.Tuple([f.vector if isinstance(f, Weight) else f for f in fields])
        return super().value(expr)

    # -- operators -------------------------------------------------------------------------------

    def rewrite(self, expr: Any) -> Any:
        """Lowers any operator of `models/ops.py`, unless a method below handles it."""
        if isinstance(expr, relax.Call):
            name, arguments = call_parts(expr)
            operator = name.removeprefix(PREFIX)
            if operator in READS:
                return self.read(operator, [self.value(a) for a in arguments[:-1]], expr.ty_args[0])
            if operator != name and not hasattr(self, f"op_{operator}"):
                return self.lower(operator, [self.value(a) for a in arguments], expr.ty_args[0])
        return super().rewrite(expr)

    def lower(self, operator: str, arguments: list[Any], out: Any) -> Any:
        """Emit the operator's kernel, chosen by the tensors' sizes and the attributes."""
        tensors = [
            a.vector if isinstance(a, Weight) else a for a in arguments if not is_attribute(a)
        ]
        attributes = [literal(a) for a in arguments if is_attribute(a)]
        kernel = self.kernels.kernel(operator, *map(sizes, tensors), *attributes)
        out = list(out.fields) if isinstance(out, relax.TupleType) else out
        return self.call_tir(kernel, operator, tensors, out)

    def read(self, operator: str, arguments: list[Any], out: Any) -> Any:
        """Emit an operator that reads packed weights; merged weights are one operand to its
        emitter."""
        members = tuple(a.index for a in arguments if isinstance(a, Member))
        if members:
            first = next(i for i, a in enumerate(arguments) if isinstance(a, Member))
            arguments[first : first + len(members)] = [self._weight(members)]
        plain = [
            a.vector
            if isinstance(a, Weight) and a.plan.use == "vector"
            else (literal(a) if is_attribute(a) else a)
            for a in arguments
        ]
        return self.kernels.emit(operator, self, *plain, out=out)

    def op_all_reduce(self, arguments: list[Any], call: relax.Call) -> Any:
        """Not a kernel: the library calls the executor."""
        name, _ = call_parts(call)
        return relax.call_dps_packed(name, relax.Tuple(arguments), call.ty_args[0])

    op_all_gather = op_all_reduce

    def relax_add(self, arguments: list[Any], call: relax.Call) -> Any:
        return self.lower("add", arguments, arguments[0].ty)

    def relax_multiply(self, arguments: list[Any], call: relax.Call) -> Any:
        x, factor = arguments
        return self.lower("scale", [x, attribute(float(factor.value.numpy()))], x.ty)


@dataclass(frozen=True)
class Member:
    """A weight of the old graph that became part of a merged one."""

    index: int


class _Uses:
    """How the graph uses each weight: its use, its scheme, and the weights it is merged with."""

    def __init__(self, count: int) -> None:
        self.weights: Any = None
        """The parameter of the function being looked at."""
        self.uses = ["vector"] * count
        self.schemes = ["f32"] * count
        self.members: dict[Any, tuple[int, ...]] = {}
        """A variable -> the weights it stands for."""
        self.merged: set[tuple[int, ...]] = set()

    def note_all(self, function: relax.Function) -> None:
        self.weights = function.params[-1]
        for block in function.body.blocks:
            for binding in block.bindings:
                self.note(binding)

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
        elif use := READS.get(name.removeprefix(PREFIX)):
            self._note_read(use, arguments)

    def _note_read(self, use: str, arguments: list[Any]) -> None:
        """A matrix that a linear reads too is no table; matrices of experts are read as one."""
        *found, scheme = arguments
        weights = [a for a in found if isinstance(a, relax.Var) and a in self.members]
        group = tuple(i for a in weights if len(dims(a)) > 1 for i in self.members[a])
        names = str(literal(scheme)).split("+")
        for index, name in zip(
            group, names * len(group) if len(names) == 1 else names, strict=True
        ):
            self.schemes[index] = name
            if use != "table" or self.uses[index] == "vector":
                self.uses[index] = use
        if use == "experts":
            self.merged.add(group)

    def runs(self, members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Neighbouring weights of one scheme, which are stored as one."""
        for _, run in groupby(members, lambda index: self.schemes[index]):
            yield tuple(run)

    def groups(self) -> list[tuple[int, ...]]:
        """Every weight once, alone or with those it is merged with, in order of first use."""
        inside = {index for group in self.merged for index in group}
        alone = [(i,) for i in range(len(self.uses)) if i not in inside]
        return sorted([*alone, *self.merged])
