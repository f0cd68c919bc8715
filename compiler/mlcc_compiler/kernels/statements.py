"""Changes to the statements of a kernel that is made already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import tirx

Stmt = Any


def each_store(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """The statement with its stores to memory changed."""

    def inner(part: Stmt) -> Stmt:
        return each_store(part, change)

    match stmt:
        case tirx.BufferStore():
            return change(stmt)
        case tirx.SeqStmt():
            return tirx.SeqStmt([inner(part) for part in stmt.seq])
        case tirx.For():
            how = (stmt.thread_binding, stmt.annotations, stmt.step)
            return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, inner(stmt.body), *how)
        case tirx.IfThenElse():
            other = None if stmt.else_case is None else inner(stmt.else_case)
            return tirx.IfThenElse(stmt.condition, inner(stmt.then_case), other)
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, inner(stmt.body))
        case tirx.While():
            return tirx.While(stmt.condition, inner(stmt.body))
    return stmt  # declarations and calls
