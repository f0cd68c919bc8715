"""Mixtures that memory cannot hold: their experts may stay in their file.

A CPU's kernels read weights where they lie in mapped files, and of a mixture's experts only those
that tokens chose. What is read stays in the system's file cache until something else needs the
memory. So a plan that has no room for all experts counts those of one layer, which is what a kernel
reads at most, and says that the rest come from the file as they are chosen. Dense matrices are read
by every token and are never counted out.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc.artifact.expert_weights import expert_bytes
from mlcc.artifact.manifest import Manifest
from mlcc.engine.batch.batch import Capacity
from mlcc.errors import CapacityError
from mlcc.model.memory.planner import Fit, fit, needed_bytes
from mlcc.util.memory import DeviceMemory
from mlcc.util.sizes import apart

CACHES = 0.5
"""Of what is left beside other weights, what caches may take while experts come from their file:
the other half is for experts that stay."""


def fit_or_offload(
    wanted: Capacity, manifest: Manifest, memory: DeviceMemory, *, fixed: bool
) -> Fit:
    """`memory.fit`; where that refuses a mixture on a device that maps its weights, a plan without
    room for all experts. Raises CapacityError if what every token reads does not fit either."""
    try:
        return fit(wanted, manifest, memory, fixed=fixed)
    except CapacityError:
        every, layer = expert_bytes(manifest.weights.tensors) if memory.mapped else (0, 0)
        if every == layer or memory.free_bytes is None:
            raise
    weights = manifest.memory.weights_bytes - every + layer
    held = replace(manifest, memory=replace(manifest.memory, weights_bytes=weights))
    plan = _with_room_for_experts(wanted, held, memory, fixed=fixed)
    has, needs = apart(
        memory.free_bytes, needed_bytes(plan.capacity, manifest) + memory.reserve_bytes
    )
    told = (
        f"{needs} are needed to hold all experts and {has} can be had: they stay in their file, "
        "and are read as tokens choose them, which is slower"
    )
    return Fit(plan.capacity, f"{told}; {plan.note}" if plan.note else told, streamed=True)


def _with_room_for_experts(
    wanted: Capacity, held: Manifest, memory: DeviceMemory, *, fixed: bool
) -> Fit:
    """A plan whose caches leave half of what they could take; all of it, if else they would be too
    small."""
    assert memory.free_bytes is not None
    empty = (
        needed_bytes(replace(wanted, pools=(0,) * len(wanted.pools)), held) + memory.reserve_bytes
    )
    spared = replace(memory, free_bytes=empty + int(CACHES * max(0, memory.free_bytes - empty)))
    try:
        plan = fit(wanted, held, spared, fixed=fixed)
        if plan.capacity.context == wanted.context:
            return replace(plan, note=None)
    except CapacityError:
        pass
    return fit(wanted, held, memory, fixed=fixed)
