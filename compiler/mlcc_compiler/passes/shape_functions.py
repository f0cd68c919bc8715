"""Pass: gives shape functions a deterministic order of stores.

TVM's VMShapeLower keeps the sizes that a function needs in a hash table and computes them in that
order, so one module could become two different libraries. Each store reads symbols only, never
another store's result: any order is correct.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import ir, tirx

_NAME = "shape_func"
"""VMShapeLower's names, with a number appended."""


def order_sizes(module: ir.IRModule) -> ir.IRModule:
    """The module with its shape functions in a fixed order."""
    for variable, function in list(module.functions.items()):
        if variable.name_hint.startswith(_NAME) and isinstance(function.body, tirx.SeqStmt):
            stores = sorted(function.body.seq, key=lambda store: int(store.indices[0]))
            module[variable] = function.with_body(tirx.SeqStmt(stores))
    return module
