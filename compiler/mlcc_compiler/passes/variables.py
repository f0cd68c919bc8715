"""Variables shared by several functions of a library: parameters, and the attribute for in-place
updates.
"""

from __future__ import annotations

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import relax, tirx
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import tensor

UPDATES = "mlcc.updates"
"""Kernel attribute: indices of the arguments that are cache tensors updated in place."""


def size_variable(name: str) -> tirx.Var:
    """A symbolic size, known when a step runs."""
    return tirx.Var(name, "int64")


def step_variable(layout: StepLayout) -> relax.Var:
    """The words of a step."""
    return relax.Var("step", tensor([layout.words], "int32"))


def cache_variable(caches: Caches) -> relax.Var:
    """The tensors of all caches; those of a group have the same number of pages. Then the rows of
    embeddings, if the model reads some."""
    pools = [size_variable(f"num_pages_{g}") for g in range(len(caches.plans))]
    types = [tensor([pools[g], *t.shape], t.dtype) for g, t in caches.tensors]
    if caches.embeddings:
        types.append(tensor([size_variable("num_embeddings"), caches.embeddings]))
    return relax.Var("caches", relax.TupleType(types))
