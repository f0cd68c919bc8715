"""Functions that kernels call: what several kernels of a library have in common, compiled once.

A function is a PrimFunc of pointers and numbers in an object file of its own, with a name that
is a hash of what it was made of. A kernel lists the names of those that it calls in an attribute.
In a module that is compiled as a whole, functions are private (`add_functions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mlcc_compiler.ir._tvm import B, T, ir, tirx, tvm
from mlcc_compiler.kernels.cpu.isa.vector_math import bind
from mlcc_compiler.kernels.origins import canonical_text, record_origin
from mlcc_compiler.kernels.statements import each_store

_CALLS = "mlcc.calls"
"""Attribute of a kernel: names of functions."""
_FUNCTION = "mlcc.function"
"""Attribute of a function."""
_ALIGNMENT = 64
"""Bytes: what TVM's kernels ask of their arguments."""
_functions: dict[str, tirx.PrimFunc] = {}


@lru_cache(maxsize=1024, typed=True)
def function_of(factory: Callable[..., Any], *arguments: Any) -> str:
    """The name of the function that factory(*arguments) makes. The PrimFunc takes pointers and
    numbers, no arrays, and has no attributes of a kernel."""
    origin = hashlib.sha256(canonical_text((factory, *arguments)).encode()).hexdigest()
    name = f"mlcc_{factory.__name__}_{origin[:16]}"
    made = _returning(factory(*arguments))
    made = made.with_attr({"global_symbol": name, "calling_conv": 1, _FUNCTION: True})
    record_origin(made, factory, *arguments)
    _functions[name] = made
    return name


def _returning(made: Any) -> Any:
    """The PrimFunc as one that returns 0, or -1 if there is no memory for a workspace."""
    body = tirx.SeqStmt([made.body, tirx.stmt.Return(T.int32(0))])
    for key, value in (("device_type", 1), ("device_id", 0)):  # of workspaces: the CPU
        body = tirx.AttrStmt(T.int32(0), key, T.int32(value), body)
    return tirx.PrimFunc(made.params, body, ir.PrimType("int32"), attrs=made.attrs)


def call_function(name: str, *arguments: Any) -> None:
    """Emit the call of a function, and what a kernel does when that fails."""
    failed = bind(T.call_extern("int32", name, *arguments))
    with B.If(failed != 0), B.Then():
        B.evaluate(T.tvm_throw_last_error())


def calling(kernel: Any, names: Sequence[str]) -> Any:
    """The kernel, with a note that it calls these functions, beside those that it calls already."""
    every = dict.fromkeys([*called_by(kernel), *names])
    return kernel.with_attr(_CALLS, list(every)) if every else kernel


def called_by(kernel: Any) -> list[str]:
    """Names of the functions that a kernel calls."""
    return [str(name) for name in (kernel.attrs or {}).get(_CALLS, ())]


def without_calls(module: ir.IRModule) -> ir.IRModule:
    """The module without the notes of its kernels: `functions_of` has what they call."""
    changed = {
        v: f.without_attr(_CALLS) if isinstance(f, tirx.PrimFunc) and called_by(f) else f
        for v, f in module.functions.items()
    }
    return ir.IRModule(changed, attrs=module.attrs)


def functions_of(modules: Sequence[ir.IRModule]) -> list[ir.IRModule]:
    """A module for each function that kernels of these call."""
    names = dict[str, None]()
    for module in modules:
        for function in module.functions.values():
            if isinstance(function, tirx.PrimFunc):
                names |= dict.fromkeys(called_by(function))
    return [ir.IRModule({ir.GlobalVar(name): _functions[name]}) for name in names]


@tvm.transform.module_pass(opt_level=0)
def _add(module: ir.IRModule, context: Any) -> ir.IRModule:
    added, variables = without_calls(module), dict[str, ir.GlobalVar]()
    for caller, kernel in module.functions.items():
        names = called_by(kernel) if isinstance(kernel, tirx.PrimFunc) else []
        for name in names:
            inside = _functions[name].without_attr("global_symbol")
            variable = variables.setdefault(name, ir.GlobalVar(name))
            added[variable] = inside.with_attr("target", kernel.attrs["target"])
        if names:
            added[caller] = _calling_inside(added[caller], variables)
    return added


def _calling_inside(kernel: Any, variables: Mapping[str, ir.GlobalVar]) -> Any:
    """The kernel with calls of functions of its own module, not of other objects."""

    def change(store: Any) -> Any:
        call = store.value
        if not isinstance(call, ir.Call) or call.op != ir.Op.get("tirx.call_extern"):
            return store
        name, *arguments = call.args
        if str(name.value) not in variables:
            return store
        inside = ir.Call(variables[str(name.value)], arguments, ret_ty=call.ty)
        return tirx.BufferStore(store.buffer, inside, store.indices)

    return kernel.with_body(each_store(kernel.body, change))


def add_functions() -> Any:
    """Pass: adds the functions that a module's kernels call, as private ones."""
    return _add


@tirx.transform.prim_func_pass(opt_level=0)
def _align(function: Any, module: Any, context: Any) -> Any:
    if _FUNCTION not in function.attrs:
        return function
    return function.with_body(_aligned(function.body))


def _aligned(body: Any) -> Any:
    """What follows the declarations of arrays, knowing that their memory is aligned."""
    if isinstance(body, tirx.AttrStmt):
        return tirx.AttrStmt(body.node, body.attr_key, body.value, _aligned(body.body))
    declared = [each for each in body.seq if isinstance(each, tirx.DeclBuffer)]
    rest: Any = tirx.SeqStmt(list(body.seq)[len(declared) :])
    for each in declared:
        rest = tirx.AttrStmt(each.buffer, "storage_alignment", T.int32(_ALIGNMENT), rest)
    return tirx.SeqStmt([*declared, rest])


def align_arrays() -> Any:
    """Pass, after buffers are flat: the arrays of functions are aligned as those of kernels."""
    return _align
