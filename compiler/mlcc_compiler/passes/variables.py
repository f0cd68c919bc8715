"""What several functions of a library share: parameters, and how kernels say what they write."""

from __future__ import annotations

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import relax, tirx
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import tensor

UPDATES = "mlcc.updates"
"""An attribute of kernels: which of its arguments are tensors of caches that it writes in place."""


def size_variable(name: str) -> tirx.Var:
    """A size that is known when a step runs."""
    return tirx.Var(name, "int64")


def step_variable(layout: StepLayout) -> relax.Var:
    """The words of a step."""
    return relax.Var("step", tensor([layout.words], "int32"))


def cache_variable(caches: Caches) -> relax.Var:
    """The tensors of all caches; those of a group have the same number of pages."""
    pools = [size_variable(f"num_pages_{g}") for g in range(len(caches.plans))]
    types = [tensor([pools[g], *t.shape], t.dtype) for g, t in caches.tensors]
    return relax.Var("caches", relax.TupleType(types))
