"""Parameters of the graph's functions, made from what kernels say of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc_compiler._tvm import relax
from mlcc_compiler.graph import tensor
from mlcc_compiler.kernels.frame import Argument, dimensions


def tensor_of(argument: Argument, symbols: dict[str, Any]) -> Any:
    """The type of a kernel's argument; `symbols` keeps the symbolic sizes by name."""
    return tensor(dimensions(argument, symbols), argument.dtype)


def variables(arguments: Mapping[str, Argument], symbols: dict[str, Any]) -> list[relax.Var]:
    """A variable for each, in order."""
    return [relax.Var(name, tensor_of(a, symbols)) for name, a in arguments.items()]
