"""The traced graph; reading its calls and emitting new ones, for passes and kernels.

A graph is a straight line: one dataflow block, no control flow. Choosing kernels is `passes/`,
computing is `kernels/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mlcc_compiler.ir._tvm import ir, relax, tirx, tvm_ffi
from mlcc_compiler.ir.layout import WeightPlan

ENTRY, MTP_ENTRY, ALIGN_ENTRY = "forward", "forward_mtp", "forward_align"
PREFIX = "mlcc."
"""Prefix of the names of mlcc's operators (`models/ops.py`), beside TVM's own."""


class Graph:
    """A function being emitted into a module; kernels that it calls become functions beside it.

    TVM's builder would hash the text of all functions of a module at the first that is added, in
    every pass anew, which took half of the passes' time. So its own module stays empty.
    """

    def __init__(self, module: ir.IRModule | None = None) -> None:
        """module: the functions that are there, each of which may be called."""
        self.builder = relax.BlockBuilder()
        self.memo: dict[Any, Any] = {}
        """What a kernel set emitted for an input and uses again for its other readers."""
        self._attributes = module.attrs if module else None
        self._functions = dict(module.functions) if module else {}
        self._added: dict[Any, Any] = {}
        """A kernel, by identity -> its global variable."""

    def add(self, kernel: Any, name: str) -> Any:
        """A kernel's global variable; equal kernels are added once."""
        if kernel not in self._added:
            self._added[kernel] = self._equal(kernel) or self._new(kernel, name)
        return self._added[kernel]

    def _equal(self, kernel: Any) -> Any:
        """The variable of a kernel with the same text, or None."""
        kernels = [each for each in self._functions.items() if isinstance(each[1], tirx.PrimFunc)]
        wanted = structural_hash(kernel)
        for variable, other in kernels:
            if structural_hash(other) == wanted and tvm_ffi.structural_equal(other, kernel):
                return variable
        return None

    def _new(self, kernel: Any, name: str) -> Any:
        taken = {variable.name_hint for variable in self._functions}
        unique = self.builder.get_unique_name(name)
        while unique in taken:
            unique = self.builder.get_unique_name(name)
        variable = ir.GlobalVar(unique)
        relax.expr._update_type(variable, kernel.ty)
        self._functions[variable] = kernel
        return variable

    def finalize(self) -> ir.IRModule:
        """The module with the function that was emitted."""
        emitted = self.builder.finalize()
        return ir.IRModule({**self._functions, **dict(emitted.functions)}, attrs=self._attributes)

    def call_tir(self, kernel: Any, name: str, arguments: Sequence[Any], out: Any) -> relax.Var:
        """Emit a call of a kernel. Raises TypeError."""
        check_dtypes(kernel, name, arguments, out)
        function = self.add(kernel, name)
        return self.builder.emit(relax.call_tir(function, list(arguments), out))

    def items(self, value: relax.Var, count: int) -> list[relax.Var]:
        """The members of a tuple."""
        return [self.builder.emit(relax.TupleGetItem(value, i)) for i in range(count)]


@lru_cache(maxsize=512)
def structural_hash(kernel: Any) -> int:
    """The hash of a kernel's text; kernels are cached by identity, as compiles share them."""
    return int(tvm_ffi.structural_hash(kernel))


def check_dtypes(kernel: Any, name: str, arguments: Sequence[Any], out: Any) -> None:
    """Raises TypeError unless the kernel's dtypes match the graph's: TVM checks them only when
    the kernel runs."""
    tensors = [a.ty for a in arguments if isinstance(a.ty, relax.TensorType)]
    given = [str(t.dtype) for t in (*tensors, *(out if isinstance(out, list) else [out]))]
    taken = [str(p.ty.dtype) for p in kernel.params if isinstance(p.ty, tirx.buffer.BufferType)]
    if given != taken:
        raise TypeError(f"kernel '{name}' is made for {taken}, and the graph has {given}")


@dataclass(frozen=True)
class Traced:
    """A model as a graph of operators, and the names of its weights in order."""

    module: ir.IRModule
    names: list[str]
    shapes: list[tuple[int, ...]]


@dataclass(frozen=True)
class Weight:
    """A weight in the graph: its plan and the variables of its physical tensors."""

    plan: WeightPlan
    parts: list[relax.Var]

    @property
    def vector(self) -> relax.Var:
        """The only tensor of an unquantized vector."""
        (part,) = self.parts
        return part

    @property
    def members(self) -> tuple[Weight, ...]:
        """The weight itself; `Merged` has several."""
        return (self,)

    @property
    def tensors(self) -> list[relax.Var]:
        """The variables of the physical tensors."""
        return self.parts


@dataclass(frozen=True)
class Merged:
    """Weights that multiply one input into one output, one below the other, each stored in its own
    scheme."""

    members: tuple[Weight, ...]

    @property
    def tensors(self) -> list[relax.Var]:
        """Tensors of all members, one after the other."""
        return [part for member in self.members for part in member.parts]


def traced_entries(module: ir.IRModule) -> list[str]:
    """The functions of a traced model, all over the same weights: `forward`, `forward_mtp` if it
    has a multi-token-prediction layer, and `forward_align` if it says where it listens."""
    names = {variable.name_hint for variable in module.get_global_vars()}
    return [name for name in (ENTRY, MTP_ENTRY, ALIGN_ENTRY) if name in names]


def call_parts(call: relax.Call) -> tuple[str, list[Any]]:
    """('mlcc.linear', arguments) or ('relax.add', arguments)."""
    if isinstance(call.op, ir.Op) and call.op.name == "relax.call_pure_packed":
        return str(call.args[0].global_symbol), list(call.args[1:])
    name = call.op.name if isinstance(call.op, ir.Op) else ""
    return name, list(call.args)


def calls(function: relax.Function) -> Iterator[relax.Call]:
    """The calls of a straight function, in order. TVM's own visitor would traverse the types of all
    weights again for each."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                yield binding.value


def operands(value: Any) -> Iterator[Any]:
    """The variables, constants and attributes that a binding's value reads, each as often as it
    does. TVM's own visitor would visit shapes as well."""
    if isinstance(value, relax.TupleGetItem):
        yield from operands(value.tuple_value)
    elif isinstance(value, (relax.Call, relax.Tuple)):
        for item in value.args if isinstance(value, relax.Call) else value.fields:
            yield from operands(item)
    else:
        yield value


def is_call(node: Any, name: str) -> bool:
    """Whether a node is a call of the named operator of TVM."""
    return isinstance(node, relax.Call) and isinstance(node.op, ir.Op) and node.op.name == name


def is_attribute(expr: Any) -> bool:
    """Whether an argument is a compile-time number or text."""
    return isinstance(expr, (tirx.IntImm, tirx.FloatImm, ir.StringImm))


def literal(expr: Any) -> int | float | str:
    """The Python value of an attribute argument."""
    value = expr.value
    if isinstance(expr, tirx.IntImm):
        return int(value)
    return float(value) if isinstance(expr, tirx.FloatImm) else str(value)


def attribute(value: int | float | str) -> Any:
    """A Python value as an argument of a call."""
    if isinstance(value, str):
        return ir.StringImm(value)
    if isinstance(value, float):
        return tirx.FloatImm("float64", value)
    return tirx.IntImm("int64", value)


def dims(expr: Any) -> list[Any]:
    """The shape of a tensor expression: ints where static, symbolic expressions elsewhere."""
    return [int(d) if isinstance(d, tirx.IntImm) else d for d in expr.ty.shape.values]


def dtype_of(expr: Any) -> str:
    """The dtype of a tensor expression."""
    return str(expr.ty.dtype)


def sizes(expr: Any) -> tuple[int, ...]:
    """The static dimensions of a tensor, without the number of rows."""
    return tuple(d for d in dims(expr) if isinstance(d, int))


def tensor(shape: Sequence[Any], dtype: str = "float32") -> Any:
    """The type of a tensor."""
    return relax.TensorType(list(shape), dtype)
