"""Parameters that several of a library's functions share."""

from __future__ import annotations

from mlcc.engine.tables import StepLayout
from mlcc_compiler._tvm import relax, tirx
from mlcc_compiler.graph import tensor
from mlcc_compiler.layout import Caches


def size_variable(name: str) -> tirx.Var:
    """A size that is known when a step runs."""
    return tirx.Var(name, "int64")


def step_variable(layout: StepLayout) -> relax.Var:
    """The words of a step."""
    return relax.Var("step", tensor([layout.words], "int32"))


def cache_variable(caches: Caches, step: StepLayout) -> relax.Var:
    """The tensors of all caches; those of a group have the same number of pages."""
    types = []
    for g, plan in enumerate(caches.plans):
        pages, layout = size_variable(f"num_pages_{g}"), caches.layout(g, step)
        types += [tensor([pages, *layout.page_shape], layout.dtype)] * len(plan.layers)
    return relax.Var("caches", relax.TupleType(types))
