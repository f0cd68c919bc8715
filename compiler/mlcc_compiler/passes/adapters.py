"""Pass: adds `forward_adapters`, which is `forward` plus each sequence's LoRA adapter.

After projections are merged, each linear layer of the blocks is a site: `y = x W'` becomes `y + (x
A') B'` by two kernels, which read each token's adapter from the step. `forward` stays
bit-identical: steps without adapters run it at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.artifact.schema import AdapterSite
from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import attribute, call_parts, dims, literal, tensor
from mlcc_compiler.ir.lora import LoraConfig, LoraShape
from mlcc_compiler.passes.lower import LowerOperators
from mlcc_compiler.passes.paged_kv import PagedKV
from mlcc_compiler.passes.rewrite import Rewriter

ENTRY = "forward_adapters"


class MarkSites(Rewriter):
    """Inserts `mlcc.adapt` after each linear layer of the blocks, with the number of its site. The
    head reads rows, not tokens, and is no site. `names`: the weights' names in their order."""

    def __init__(self, module: ir.IRModule, names: Sequence[str]) -> None:
        super().__init__(module)
        self.names = names
        self.sites: list[AdapterSite] = []
        """The sites, after the pass has run."""
        self.members: dict[Any, tuple[tuple[str, int], ...]] = {}
        """A variable -> the matrices it stands for, each with its rows."""

    def setup(self, function: relax.Function) -> list[relax.Var]:
        self.tokens = function.params[0].ty.shape.values[0]
        self.weights = function.params[-1]
        return list(function.params)

    def visit(self, binding: Any) -> None:
        value = binding.value
        super().visit(binding)
        if isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(self.weights):
            name = self.names[value.index].removesuffix(".weight")
            self.members[binding.var] = ((name, dims(binding.var)[0]),)
        elif isinstance(value, relax.Call):
            self._visit_call(binding, value)

    def _visit_call(self, binding: Any, call: relax.Call) -> None:
        name, arguments = call_parts(call)
        if name == "mlcc.concat_rows":
            parts = [self.members[argument] for argument in arguments]
            self.members[binding.var] = tuple(member for part in parts for member in part)
        elif name == "mlcc.linear" and dims(arguments[0])[0].same_as(self.tokens):
            x, weight, *_ = arguments
            modules, outputs = zip(*self.members[weight], strict=True)
            site = AdapterSite(modules=modules, outputs=outputs, inputs=int(dims(x)[1]))
            y, number = self.values[binding.var], attribute(len(self.sites))
            self.sites.append(site)
            call = relax.call_pure_packed(
                "mlcc.adapt", self.value(x), y, number, ty_args=binding.var.ty
            )
            self.values[binding.var] = self.builder.emit(call)


def sites_of(module: ir.IRModule, names: Sequence[str]) -> tuple[AdapterSite, ...]:
    """The sites of a traced graph."""
    marked = MarkSites(module, names)
    marked.run()
    return tuple(marked.sites)


class AdaptedKV(PagedKV):
    """`PagedKV` for a marked graph: the parameters are those of `forward` plus, before the weights,
    the adapter tensors of all sites."""

    entry = ENTRY

    def __init__(self, module: ir.IRModule, *arguments: Any, shapes: Sequence[LoraShape]) -> None:
        super().__init__(module, *arguments)
        self.shapes = shapes

    def setup(self, function: relax.Function) -> list[relax.Var]:
        *parameters, weights = super().setup(function)
        types = [
            tensor(sizes)
            for s in self.shapes
            for sizes in ((s.slots, s.rows, s.inputs), (s.slots, s.rank, sum(s.outputs)))
        ]
        self.adapters = relax.Var("adapters", relax.TupleType(types))
        return [*parameters, self.adapters, weights]

    def op_adapt(self, arguments: list[Any], call: relax.Call) -> Any:
        x, y, number = arguments
        site = int(literal(number))
        shape = self.shapes[site]
        a, b = (
            self.builder.emit(relax.TupleGetItem(self.adapters, 2 * site + i)) for i in range(2)
        )
        small = tensor([self.sizes["n"], shape.rows])
        kernel = self.kernels.kernel("adapt_shrink", shape)
        shrunk = self.call_tir(kernel, "adapt_shrink", [x, a, self.step], small)
        kernel = self.kernels.kernel("adapt_expand", shape)
        return self.call_tir(kernel, "adapt_expand", [y, shrunk, b, self.step], y.ty)


def add_adapters(
    module: ir.IRModule,
    merged: ir.IRModule,
    forward: LowerOperators,
    caches: Caches,
    layout: StepLayout,
    lora: LoraConfig,
) -> tuple[ir.IRModule, tuple[AdapterSite, ...]]:
    """The module with `forward_adapters` beside `forward`, and the sites.

    merged: the graph with merged projections from which `forward` was lowered. forward: that
    lowering; both functions read the same weights.
    """
    kernels, names = forward.kernels, forward.names
    marked = MarkSites(merged, names)
    graph = relax.utils.copy_with_new_vars(marked.run()["forward"])
    both = ir.IRModule(module.functions, attrs=module.attrs)
    both[ENTRY] = graph.with_attr("global_symbol", ENTRY)
    shapes = [LoraShape.of(site, lora.slots, lora.rank, layout) for site in marked.sites]
    both = AdaptedKV(both, caches, layout, kernels, shapes=shapes).run()
    return LowerOperators(both, kernels, names, ENTRY, forward).run(), tuple(marked.sites)
