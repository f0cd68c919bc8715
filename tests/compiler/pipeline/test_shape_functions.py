"""Shape computations have a fixed order; TVM's own is that of a hash table, which is not
reproducible."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import relax, tirx
from mlcc_compiler.passes.shape_functions import order_sizes


def slots(module: Any) -> dict[str, list[int]]:
    """The slots of the stores of each function with more than one, in order."""
    found = {
        v.name_hint: f.body for v, f in module.functions.items() if "shape_func" in v.name_hint
    }
    return {
        name: [int(store.indices[0]) for store in body.seq]
        for name, body in found.items()
        if isinstance(body, tirx.SeqStmt)
    }


def test_sizes_are_stored_in_the_order_of_their_slots() -> None:
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    with builder.function("f", [relax.Var("x", relax.TensorType([n], "float32"))]):
        builder.emit_func_output(relax.ShapeExpr([n * 2, n + 5, n * n, n * n * 3]))
    module = relax.transform.VMShapeLower()(builder.finalize())
    (order,) = slots(module).values()
    assert sorted(order) == [1, 2, 3, 4]
    for variable, function in list(module.functions.items()):
        if isinstance(function.body, tirx.SeqStmt):
            turned = sorted(function.body.seq, key=lambda store: -int(store.indices[0]))
            module[variable] = function.with_body(tirx.SeqStmt(turned))
    assert [*slots(module).values()] == [[4, 3, 2, 1]]
    assert [*slots(order_sizes(module)).values()] == [[1, 2, 3, 4]]
