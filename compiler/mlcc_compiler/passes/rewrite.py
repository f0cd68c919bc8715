"""Base class of graph passes: rebuilds a straight-line graph one binding at a time.

mlcc's `forward` has one dataflow block and no control flow, so a pass is an interpreter: it visits
the bindings in order and emits, for each call, the same call or a replacement.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import Graph, call_parts


class Rewriter(Graph):
    """Rebuild one function of a module, `forward` or another. A subclass defines
    `op_<name>(arguments, call)` to replace `mlcc.<name>` calls, and `relax_<name>` for TVM's own
    operators; the rest is copied."""

    entry = "forward"
    """The function that is rebuilt; the others stay."""

    def __init__(self, module: ir.IRModule, entry: str = "") -> None:
        """entry: the function; without it the class's own."""
        self.entry = entry or self.entry
        # it is built anew under its own name; kernels stay, with the same global variables
        others = {v: f for v, f in module.functions.items() if v.name_hint != self.entry}
        super().__init__(ir.IRModule(others, attrs=module.attrs))
        self.module = module
        self.values: dict[Any, Any] = {}

    def run(self) -> ir.IRModule:
        """The rewritten module."""
        old = self.module[self.entry]
        params = self.setup(old)
        attributes = dict(old.attrs) if old.attrs else {}
        with self.builder.function(self.entry, params, attrs=attributes):
            with self.builder.dataflow():
                self.begin()
                for block in old.body.blocks:
                    for binding in block.bindings:
                        self.visit(binding)
                output = self.builder.emit_output(self.end(self.value(old.body.body)))
            self.builder.emit_func_output(output)
        return self.finalize()

    def setup(self, function: relax.Function) -> list[relax.Var]:
        """Inspect the whole function first; returns the parameters of the new one."""
        return list(function.params)

    def begin(self) -> None:
        """Emit code before the first binding."""

    def end(self, output: Any) -> Any:
        """Emit code after the last binding; returns the function's result."""
        return output

    def visit(self, binding: Any) -> None:
        value = self.rewrite(binding.value)
        if not isinstance(value, relax.Var):
            value = self.builder.emit(value)
        self.values[binding.var] = value

    def rewrite(self, expr: Any) -> Any:
        """The new expression for an old one."""
        if isinstance(expr, relax.Var):
            return self.value(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self.tuple_item(expr)
        if not isinstance(expr, relax.Call):
            return expr
        name, arguments = call_parts(expr)
        handler = getattr(self, name.replace("mlcc.", "op_").replace("relax.", "relax_"), None)
        arguments = [self.value(argument) for argument in arguments]
        if handler is not None:
            return handler(arguments, expr)
        return self.copy(expr)

    def tuple_item(self, expr: relax.TupleGetItem) -> Any:
        return relax.TupleGetItem(self.value(expr.tuple_value), expr.index)

    def copy(self, call: relax.Call) -> relax.Call:
        arguments = [self.value(argument) for argument in call.args]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    def value(self, expr: Any) -> Any:
        """The new value of an old argument."""
        if isinstance(expr, relax.Var):
            return self.values.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.value(item) for item in expr.fields])
        return expr
