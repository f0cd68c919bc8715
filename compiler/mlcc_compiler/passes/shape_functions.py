"""Pass: the functions that compute sizes store them in the order of their slots.

TVM's VMShapeLower keeps the sizes that a function needs in a hash table and computes them in the
order of that, so one module could become two libraries. Each store reads symbols only, never what
another store computes: any order is right.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import ir, tirx

_NAME = "shape_func"
"""What VMShapeLower calls them, with a number behind."""


def order_sizes(module: ir.IRModule) -> ir.IRModule:
    """The module with its shape functions in one order."""
    for variable, function in list(module.functions.items()):
        if variable.name_hint.startswith(_NAME) and isinstance(function.body, tirx.SeqStmt):
            stores = sorted(function.body.seq, key=lambda store: int(store.indices[0]))
            module[variable] = function.with_body(tirx.SeqStmt(stores))
    return module
