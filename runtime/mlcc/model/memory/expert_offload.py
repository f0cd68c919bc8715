"""Expert offload: mixture-of-experts models whose experts do not all fit in memory.

CPU kernels read weights in place from memory-mapped files, and only the experts that tokens are
routed to. Pages read from the file stay in the system's file cache until the memory is needed.
A plan that cannot hold all experts counts only those of one layer, the most that a kernel reads at
once, and notes that the rest are read from the file on demand. Dense matrices are read by every
token and always count.
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
"""Share of the memory beside the other weights that caches may take while experts are offloaded;
the rest is for experts in the file cache."""


def fit_or_offload(
    wanted: Capacity, manifest: Manifest, memory: DeviceMemory, *, fixed: bool
) -> Fit:
    """`planner.fit`, or, for a mixture on a device that maps its weights, a plan with offloaded
    experts. Raises CapacityError if the weights that every token reads do not fit either."""
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
    note = (
        f"{needs} are needed to hold all experts and {has} can be had: they stay in their file, "
        "and are read as tokens choose them, which is slower"
    )
    return Fit(plan.capacity, f"{note}; {plan.note}" if plan.note else note, streamed=True)


def _with_room_for_experts(
    wanted: Capacity, held: Manifest, memory: DeviceMemory, *, fixed: bool
) -> Fit:
    """A plan whose caches take half of the memory they could; all of it if that is too small."""
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
