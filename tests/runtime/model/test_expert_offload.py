"""A mixture larger than memory: the weights that may stay in their file, and the resulting plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlcc.artifact.expert_weights import expert_bytes, expert_matrices
from mlcc.artifact.schema import MemoryPlan, WeightsInfo, WeightSpec
from mlcc.errors import CapacityError
from mlcc.model.memory.expert_offload import fit_or_offload
from mlcc.model.memory.planner import needed_bytes, plan_capacity
from mlcc.util.memory import DeviceMemory
from tests.runtime.artifact.small_artifact import manifest

MB = 1 << 20
EXPERTS = "model.layers.{}.mlp.experts.0-7.{}.weight.codes"
DENSE = "model.layers.0.self_attn.q_proj+k_proj+v_proj.weight.codes"


def spec(name: str, megabytes: int) -> WeightSpec:
    return WeightSpec(name=name, dtype="uint8", shape=(megabytes, MB), shard="weights.safetensors")


MIXTURE = (
    spec(DENSE, 10),
    *(spec(EXPERTS.format(i, "gate_proj+up_proj"), 200) for i in range(4)),
    *(spec(EXPERTS.format(i, "down_proj"), 100) for i in range(4)),
)


def compiled(tensors: tuple[WeightSpec, ...]) -> Any:
    """A manifest with these weights, and 8 pages that are small compared with them."""
    made = manifest(WeightsInfo(tensors=tensors))
    weights = sum(tensor.nbytes for tensor in tensors)
    memory = MemoryPlan(weights_bytes=weights, cache_bytes=0, workspace_bytes=MB)
    return replace(made, memory=memory)


def memory(megabytes: int, mapped: bool = True) -> DeviceMemory:
    return DeviceMemory(megabytes * MB, reserve_bytes=0, mapped=mapped)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        (EXPERTS.format(3, "down_proj"), 8),
        (EXPERTS.format(3, "gate_proj+up_proj"), 16),  # gate of all, then up of all
        ("model.layers.0.mlp.experts.0+1.gate_proj+up_proj.weight", 4),
        ("model.layers.0.mlp.experts.0.down_proj.weight", 1),
        ("model.layers.0.mlp.shared_experts.gate_proj+up_proj.weight.codes", 0),
        ("model.layers.0.mlp.gate.weight", 0),
        (DENSE, 0),
    ],
)
def test_experts_are_known_by_the_names_of_their_matrices(name: str, count: int) -> None:
    assert expert_matrices(name) == count


def test_a_layers_experts_are_what_a_kernel_reads_at_most() -> None:
    assert expert_bytes(MIXTURE) == (1200 * MB, 300 * MB)
    assert expert_bytes(MIXTURE[:1]) == (0, 0)


def test_what_fits_is_planned_as_ever() -> None:
    model = compiled(MIXTURE)
    plan = fit_or_offload(plan_capacity(model), model, memory(2000), fixed=False)
    assert not plan.streamed and plan.note is None


def test_experts_that_do_not_fit_stay_in_their_file() -> None:
    model = compiled(MIXTURE)
    wanted = plan_capacity(model)
    plan = fit_or_offload(wanted, model, memory(400), fixed=True)
    assert plan.streamed and plan.capacity == wanted
    assert plan.note is not None and "read as tokens choose them" in plan.note
    assert "1.27 GB are needed" in plan.note and "419.43 MB can be had" in plan.note


def test_caches_leave_room_for_experts() -> None:
    """If all pages would take the remaining memory, half of it is left to the file cache."""
    model = compiled(MIXTURE)
    wanted = plan_capacity(model)
    pools = tuple(1000 * pool for pool in wanted.pools)
    wanted = replace(wanted, pools=pools)
    layer = 311 * MB
    caches = needed_bytes(wanted, model) - needed_bytes(replace(wanted, pools=(0,)), model)
    assert layer + caches < 1000 * MB
    tight = DeviceMemory(layer + caches, reserve_bytes=0, mapped=True)
    plan = fit_or_offload(wanted, model, tight, fixed=True)
    assert 0.4 * wanted.pools[0] < plan.capacity.pools[0] <= 0.5 * wanted.pools[0]


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (MIXTURE, memory(400, mapped=False)),  # a GPU takes all of them
        (MIXTURE, memory(300)),  # not even a layer
        ((spec(DENSE, 1210),), memory(400)),  # every token reads it
    ],
)
def test_the_rest_is_refused(tensors: tuple[WeightSpec, ...], found: DeviceMemory) -> None:
    model = compiled(tensors)
    with pytest.raises(CapacityError, match="the model needs"):
        fit_or_offload(plan_capacity(model), model, found, fixed=False)
