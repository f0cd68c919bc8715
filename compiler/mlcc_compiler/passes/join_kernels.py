"""Pass: fuses a kernel that prepares another kernel's output into that kernel: one call instead of
two.

Rows are quantized, or rounded to bf16, for the products that read them; the kernel that makes the
rows (a norm, attention, a gated product) then does that too. One rule for all: the pass looks at
calls of kernels and knows none by name (`kernels/fused_kernels.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import is_call, operands
from mlcc_compiler.kernels.cpu.linear.amx_outputs import can_write_tiles, fuse_to_tiles
from mlcc_compiler.kernels.fused_kernels import READS_LAST, fuse_kernels
from mlcc_compiler.kernels.origins import record_fused_origin
from mlcc_compiler.passes.rewrite import Rewriter


class JoinKernels(Rewriter):
    """If several kernels prepare one array, the first is joined; calls that write in place stay."""

    def __init__(self, module: ir.IRModule, entry: str) -> None:
        self.entry = entry
        super().__init__(module)
        self.joins: dict[Any, Any] = {}
        """The variable of a maker's result -> the binding of what joins it."""
        self.behind: dict[Any, tuple[Any, int]] = {}
        """The variable of a result that is made by a joined call -> that call's result, and where
        in it the former's arrays begin."""
        self.uses: Counter[Any] = Counter()
        """Of each variable."""
        self.values_of: dict[Any, Any] = {}

    def setup(self, function: relax.Function) -> list[relax.Var]:
        last_of: dict[Any, Any] = {}
        """An array -> the result whose last, or only, array it is, in whatever shape."""
        for block in function.body.blocks:
            for binding in block.bindings:
                value = binding.value
                self.values_of[binding.var] = value
                self._count(value)
                if isinstance(value, relax.TupleGetItem):
                    whole = value.tuple_value
                    if whole in last_of and value.index == len(whole.ty.fields) - 1:
                        last_of[binding.var] = whole
                elif is_call(value, "relax.reshape"):
                    (array, *_) = value.args
                    if array in last_of and _rows(array).same_as(_rows(binding.var)):
                        last_of[binding.var] = last_of[array]
                elif is_call(value, "relax.call_tir"):
                    self._note(binding, last_of)
                    last_of[binding.var] = binding.var
        self._count(function.body.body)
        return list(function.params)

    def _count(self, value: Any) -> None:
        self.uses.update(each for each in operands(value) if isinstance(each, relax.Var))

    def _reads_alone(self, reader: Any) -> bool:
        """Whether nothing else reads the array that a call reads first, in any shape."""
        array = reader.args[1].fields[0]
        while self.uses[array] == 1:
            value = self.values_of[array]
            if isinstance(value, relax.TupleGetItem):
                items = [v for v in self.values_of.values() if _same_item(v, value)]
                return len(items) == 1
            if not is_call(value, "relax.reshape"):
                return True
            array = value.args[0]
        return False

    def _note(self, binding: Any, last_of: dict[Any, Any]) -> None:
        kernel, arguments = self._kernel(binding.value), binding.value.args[1].fields
        if READS_LAST in kernel.attrs and arguments[0] in last_of:
            self.joins.setdefault(last_of[arguments[0]], binding)

    def _kernel(self, call: relax.Call) -> Any:
        return self.module[call.args[0]]

    def visit(self, binding: Any) -> None:
        reader = self.joins.get(binding.var)
        if binding.var in self.behind:
            return  # made with its input
        if reader is None:
            super().visit(binding)
            return
        outputs = [_outputs(of.value) for of in (binding, reader)]
        both = self.builder.emit(self._call(binding.value, reader.value, outputs[0] + outputs[1]))
        self.behind[reader.var] = both, len(outputs[0])
        if isinstance(binding.var.ty, relax.TupleType):
            self.behind[binding.var] = both, 0
        else:
            (self.values[binding.var],) = self.items(both, 1)

    def _call(self, maker: relax.Call, reader: relax.Call, out: list[Any]) -> relax.Call:
        kernels = self._kernel(maker), self._kernel(reader)
        tiles = can_write_tiles(*kernels) and self._reads_alone(reader)
        fused = _fused(fuse_to_tiles if tiles else fuse_kernels, *kernels)
        names = [call.args[0].name_hint for call in (maker, reader)]
        function = self.add(fused, "_".join(names))
        return relax.call_tir(function, self.value(maker.args[1]), out)

    def tuple_item(self, expr: relax.TupleGetItem) -> Any:
        if expr.tuple_value not in self.behind:
            return super().tuple_item(expr)
        whole, first = self.behind[expr.tuple_value]
        return relax.TupleGetItem(whole, first + expr.index)

    def value(self, expr: Any) -> Any:
        """A kernel's single output, where the call returns no tuple."""
        if isinstance(expr, relax.Var) and expr in self.behind and expr not in self.values:
            whole, first = self.behind[expr]
            self.values[expr] = self.builder.emit(relax.TupleGetItem(whole, first))
        return super().value(expr)


@lru_cache(maxsize=256)
def _fused(fuse: Callable[[Any, Any], Any], maker: Any, reader: Any) -> Any:
    """One kernel of two, the same object in every compile of a process."""
    kernel = fuse(maker, reader)
    record_fused_origin(kernel, fuse, maker, reader)
    return kernel


def _same_item(value: Any, item: relax.TupleGetItem) -> bool:
    alike = isinstance(value, relax.TupleGetItem) and value.index == item.index
    return alike and value.tuple_value.same_as(item.tuple_value)


def _outputs(call: relax.Call) -> list[Any]:
    """The types of a call's output arrays."""
    (made,) = call.ty_args
    return list(made.fields) if isinstance(made, relax.TupleType) else [made]


def _rows(array: Any) -> Any:
    return array.ty.shape.values[0]
