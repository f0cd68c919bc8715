"""Passes over the storages that functions allocate.

Every storage is allocated at its upper bound. TVM plans a function's own tensors for their bounds,
but returned tensors are allocated at their exact size. Its pools keep freed storages by size:
logits of 1, 2, 3 .. 64 rows would all stay in memory.

For CPUs a storage holds arrays of one size only, so that a row lies where the same row of the
previous array lay, in the caches of the core that computes it. With mixed sizes it would lie where
another core has just written, and each cache line would be fetched from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import ceil, prod
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import ir, relax, tirx, tvm
from mlcc_compiler.ir.graph import calls, is_call

PAGE = 4096
"""Granularity of TVM's pools."""


def bound_storages(module: ir.IRModule) -> ir.IRModule:
    """The module with `alloc_storage` of constant sizes, where a function declares its bounds."""
    for variable, function in list(module.functions.items()):
        bounds = (function.attrs or {}).get("tir_var_upper_bound")
        if isinstance(function, relax.Function) and bounds:
            module[variable] = _Bounded(module, dict(bounds)).visit_expr(function)
    return module


def storage_bytes(module: ir.IRModule) -> int:
    """Storage of all functions together, rounded as the pools do: the most that steps take."""
    functions = (f for f in module.functions.values() if isinstance(f, relax.Function))
    found = (storage_size(call) for function in functions for call in calls(function))
    return sum(PAGE * ceil(size / PAGE) for size in found if size is not None)


def storage_size(call: relax.Call) -> int | None:
    """Bytes of an `alloc_storage` call of constant size; None otherwise."""
    if not is_call(call, "relax.memory.alloc_storage"):
        return None
    (size,) = call.args[0].values
    return int(size) if isinstance(size, tirx.IntImm) else None


def storages_by_size(module: ir.IRModule) -> ir.IRModule:
    """The module after TVM's planning, with storages that hold arrays of one size each."""
    for variable, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            module[variable] = _BySize(module).visit_expr(function)
    return module


@relax.expr_functor.mutator
class _BySize(relax.PyExprMutator):
    """Where TVM's plan reuses a storage, the previous array is dead: its new storage is then free
    for another array of the same size."""

    def __init__(self, module: ir.IRModule) -> None:
        super().__init__(module)
        self._planned: dict[Any, relax.Call] = {}
        self._holds: dict[Any, tuple[Any, relax.Var]] = {}
        """TVM's storage -> its last array's size, and what holds that."""
        self._free: dict[Any, list[relax.Var]] = defaultdict(list)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if is_call(binding.value, "relax.memory.alloc_storage"):
            self._planned[binding.var] = binding.value  # made where an array of it is
        else:
            super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> Any:
        if not is_call(call, "relax.memory.alloc_tensor"):
            return super().visit_call_(call)
        storage, offset, shape, dtype, *rest = call.args
        own = self._taken(storage, prod(shape.values) * np.dtype(str(dtype.value)).itemsize)
        return relax.Call(call.op, [own, offset, shape, dtype, *rest], call.attrs, call.ty_args)

    def _taken(self, storage: relax.Var, size: Any) -> relax.Var:
        """The storage for the next array that TVM placed in a given storage."""
        if storage in self._holds:
            before, held = self._holds[storage]
            self._free[before].append(held)
        planned = self._planned[storage]
        size = tvm.sym.Analyzer().simplify(size)
        kind = str(size), str(planned.args[3])
        free = self._free[kind]
        if not free:
            whole = [relax.ShapeExpr([size]), *planned.args[1:]]
            free.append(self.builder_.emit(relax.Call(planned.op, whole, planned.attrs)))
        self._holds[storage] = kind, free.pop()
        return self._holds[storage][1]


@relax.expr_functor.mutator
class _Bounded(relax.PyExprMutator):
    def __init__(self, module: ir.IRModule, bounds: Mapping[str, int]) -> None:
        super().__init__(module)
        self._bounds = bounds

    def visit_call_(self, call: relax.Call) -> Any:
        if not is_call(call, "relax.memory.alloc_storage"):
            return super().visit_call_(call)
        (size,) = call.args[0].values
        analyzer = tvm.sym.Analyzer()
        for symbol in tirx.analysis.undefined_vars(size, []):
            analyzer.bind(symbol, tirx.IntImm("int64", int(self._bounds[symbol.name])))
        constant = analyzer.simplify(size)
        return relax.Call(
            call.op, [relax.ShapeExpr([constant]), *call.args[1:]], call.attrs, call.ty_args
        )
