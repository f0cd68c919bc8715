"""The traced graph as JSON: the "library" of target `reference`, which numpy evaluates.

One node per call, in order: {"out", "op", "in", "attributes"}. Symbolic sizes become -1 in the
shapes of reshapes; constants are stored inline. Nothing is lowered or optimised.
"""

from __future__ import annotations

import json
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax, tirx
from mlcc_compiler.ir.graph import (
    ENTRY,
    Traced,
    call_parts,
    is_attribute,
    literal,
    traced_entries,
)


def graph_to_json(traced: Traced) -> str:
    """The graph of a traced model. Raises TypeError on a node it does not know (a bug)."""
    entries = traced_entries(traced.module)
    graph, *others = (_graph_of(traced.module[entry], entry, traced.names) for entry in entries)
    for entry, other in zip(entries[1:], others, strict=True):
        graph[entry.removeprefix("forward_")] = other
    return json.dumps(graph, indent=1) + "\n"


def _graph_of(function: relax.Function, entry: str, weights: list[str]) -> dict[str, Any]:
    names: dict[Any, str] = {param: param.name for param in function.params}
    prefix = "" if entry == ENTRY else entry + "."
    writer = _Writer(names, function.params[-1], weights, prefix)
    for block in function.body.blocks:
        for binding in block.bindings:
            writer.add(binding.var, binding.value)
    return {
        "inputs": [param.name for param in function.params[:-1]],
        "constants": writer.constants,
        "nodes": writer.nodes,
        "output": names[function.body.body],
    }


class _Writer:
    def __init__(
        self, names: dict[Any, str], weights: Any, weight_names: list[str], prefix: str
    ) -> None:
        self.prefix = prefix
        self.names, self.weights, self.weight_names = names, weights, weight_names
        self.nodes: list[dict[str, Any]] = []
        self.constants: dict[str, list[float]] = {}

    def add(self, variable: Any, value: Any) -> None:
        if isinstance(value, relax.Var):
            self.names[variable] = self.names[value]
        elif isinstance(value, relax.TupleGetItem):
            self._add_item(variable, value)
        else:
            self._add_call(variable, value)

    def _add_item(self, variable: Any, value: Any) -> None:
        if value.tuple_value.same_as(self.weights):
            self.names[variable] = "weight:" + self.weight_names[value.index]
        else:
            self._emit(variable, "item", [self.names[value.tuple_value]], [int(value.index)])

    def _add_call(self, variable: Any, call: Any) -> None:
        op, arguments = call_parts(call)
        inputs: list[str] = []
        attributes: list[Any] = []
        for argument in arguments:
            if isinstance(argument, relax.Var):
                inputs.append(self.names[argument])
            elif is_attribute(argument):
                attributes.append(literal(argument))
            elif isinstance(argument, relax.ShapeExpr):
                attributes.append([_size(size) for size in argument.values])
            else:
                inputs.append(self._constant(argument))
        if op == "relax.split":
            attributes = [[int(i) for i in call.attrs.indices_or_sections], int(call.attrs.axis)]
        self._emit(variable, op, inputs, attributes)

    def _emit(self, variable: Any, op: str, inputs: list[str], attributes: list[Any]) -> None:
        self.names[variable] = f"v{len(self.nodes)}"
        node = {"out": self.names[variable], "op": op, "in": inputs, "attributes": attributes}
        self.nodes.append(node)

    def _constant(self, argument: Any) -> str:
        if not isinstance(argument, ir.GenericConst):
            raise TypeError(f"cannot write a {type(argument).__name__} to the reference graph")
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants[name] = argument.value.numpy().tolist()
        return name


def _size(size: Any) -> int:
    return int(size) if isinstance(size, tirx.IntImm) else -1
