"""Memory is planned before loading: pages are reduced first, then the context, with a note."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.schema import CacheInfo, MemoryPlan, TensorSpec, WeightsInfo, tables_of
from mlcc.engine.batch.batch import Capacity, check_capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import CapacityError
from mlcc.model.memory.planner import (
    fit,
    needed_bytes,
    plan_capacity,
    plan_text,
)
from mlcc.util.memory import RESERVE_BYTES, DeviceMemory, available_bytes, container_bytes
from tests.runtime.artifact.small_artifact import manifest

PAGED = CacheGroup("paged", 16)
WANTED = Capacity.of([PAGED], [256], vocab_size=100, context=1024, max_batch=4, max_step_tokens=512)
PAGE = 1 << 20


class Manifest:
    """The part of a manifest that memory planning reads."""

    adapters = None
    memory = MemoryPlan(weights_bytes=100 << 20, cache_bytes=256 * PAGE, workspace_bytes=10 << 20)
    caches = (
        CacheInfo(
            kind="paged",
            page_size=16,
            window=None,
            pool=256,
            layers=tuple(range(64)),
            tensors=(TensorSpec(name="kv", dtype="float16", shape=("num_pages", 2, 4, 16, 64)),)
            * 64,
        ),
    )


MANIFEST: Any = Manifest()
BASE = RESERVE_BYTES + (110 << 20)
COMPILED: Any = manifest(WeightsInfo(tensors=()))
"""For 4 sequences, 64 tokens and 4 rows a step, in a context of 128: 8 pages of 16."""


def test_bounds_are_chosen_within_those_compiled_in() -> None:
    assert plan_capacity(COMPILED) == plan_capacity(
        COMPILED, context=128, max_batch=4, max_step_tokens=64, max_rows=4
    )
    found = plan_capacity(COMPILED, context=32, max_batch=3, max_step_tokens=16, max_rows=2)
    chosen = (found.context, found.max_batch, found.max_step_tokens, found.max_rows)
    assert chosen == (32, 3, 16, 2) and found.pools == (6,)
    assert found.layout == COMPILED.layout
    check_capacity(found)


@pytest.mark.parametrize("name, most", [("context", 128), ("max_batch", 4),
                                        ("max_step_tokens", 64), ("max_rows", 4)])  # fmt: skip
@pytest.mark.parametrize("beyond", [True, False])
def test_a_bound_beyond_the_compiled_one_says_how_to_compile_larger(
    name: str, most: int, beyond: bool
) -> None:
    wanted = most + 1 if beyond else 0
    option = f"--{name.replace('_', '-')} {wanted}"
    message = f"{option} is not within 1 .. {most}, .* `mlcc compile {option}`"
    with pytest.raises(CapacityError, match=message):
        plan_capacity(COMPILED, **{name: wanted})


def test_a_window_of_shorter_steps_needs_fewer_pages() -> None:
    (cache,) = COMPILED.caches
    slides = replace(cache, kind="window", window=17, pool=24)
    model = replace(
        COMPILED, caches=(slides,), tables=tables_of(COMPILED.limits.layout([slides.group]))
    )
    assert plan_capacity(model).pools == (24,)
    assert plan_capacity(model, max_step_tokens=16).pools == (4 * 3,)


def test_all_of_it_fits() -> None:
    assert needed_bytes(WANTED, MANIFEST) + RESERVE_BYTES == BASE + 256 * PAGE
    for available in (None, BASE + 256 * PAGE):
        assert fit(WANTED, MANIFEST, DeviceMemory(available), fixed=True) == fit(
            WANTED, MANIFEST, DeviceMemory(), fixed=True
        )
        assert fit(WANTED, MANIFEST, DeviceMemory(available), fixed=False).capacity == WANTED


def test_pages_give_first_even_when_sizes_are_fixed() -> None:
    plan = fit(WANTED, MANIFEST, DeviceMemory(BASE + 100 * PAGE), fixed=True)
    assert plan.capacity == replace(WANTED, pools=(100,))
    assert plan.note is not None and "1600 tokens in all" in plan.note


def test_then_the_context() -> None:
    plan = fit(WANTED, MANIFEST, DeviceMemory(BASE + 40 * PAGE), fixed=False)
    assert plan.capacity == replace(WANTED, pools=(40,), context=640)
    assert plan.note is not None and "640 tokens instead of 1024" in plan.note


@pytest.mark.parametrize(
    ("pages", "fixed", "gist"),
    [(40, True, "use --context 640"), (10, False, "smaller --quant"), (-50, False, "are free")],
)
def test_too_little_is_refused_with_both_numbers(pages: int, fixed: bool, gist: str) -> None:
    with pytest.raises(CapacityError, match=gist) as caught:
        fit(WANTED, MANIFEST, DeviceMemory(BASE + pages * PAGE), fixed=fixed)
    assert len(set(re.findall(r"[\d.]+ [MG]B", caught.value.message))) == 2


def test_one_byte_too_little_does_not_look_like_enough() -> None:
    wanted = replace(WANTED, pools=(64,))
    with pytest.raises(CapacityError) as caught:
        fit(wanted, MANIFEST, DeviceMemory(BASE + 64 * PAGE - 1), fixed=True)
    needs, has = re.findall(r"([\d.]+) [MG]B", caught.value.message)
    assert float(needs) > float(has)


def test_a_layers_pages_are_one_tensor() -> None:
    layer = 2 * 4 * 16 * 64 * 2
    plan = fit(WANTED, MANIFEST, DeviceMemory(None, 100 * layer + 1), fixed=True)
    assert plan.capacity == replace(WANTED, pools=(100,))
    assert plan.note is not None and "one tensor, of 1600 tokens" in plan.note
    smallest = fit(WANTED, MANIFEST, DeviceMemory(BASE + 90 * PAGE, 100 * layer), fixed=True)
    assert smallest.capacity.pools == (90,)
    with pytest.raises(CapacityError, match="use --context 640"):
        fit(WANTED, MANIFEST, DeviceMemory(None, 40 * layer), fixed=True)


def test_kernels_count_elements_in_int32() -> None:
    huge = replace(WANTED, pools=(1 << 20,))
    assert fit(huge, MANIFEST, DeviceMemory(), fixed=True).capacity.pools == ((2**31 - 1) // 8192,)


def test_windows_shrink_by_sequences_and_pages_take_the_rest() -> None:
    """Four layers of all tokens and sixty of a window: pages of 64 KiB and 960 KiB."""
    groups = [PAGED, CacheGroup("window", 16, 64)]
    wanted = Capacity.of(
        groups, [256, 4 * 9], vocab_size=100, context=1024, max_batch=4, max_step_tokens=64
    )
    manifest: Any = Manifest()
    (whole,) = Manifest.caches
    manifest.caches = (
        replace(whole, layers=whole.layers[:4], tensors=whole.tensors[:4]),
        replace(whole, kind="window", window=64, pool=36, layers=whole.layers[4:],
                tensors=whole.tensors[4:]),
    )  # fmt: skip
    each, window = (cache.bytes_per_page for cache in manifest.caches)
    assert (each, window) == (64 << 10, 960 << 10)

    def pools(room: int) -> tuple[int, ...]:
        return fit(wanted, manifest, DeviceMemory(BASE + room), fixed=False).capacity.pools

    assert pools(36 * window + 256 * each) == (256, 36)
    assert pools(36 * window + 200 * each) == (200, 36)
    assert pools(36 * window + 63 * each) == (256, 18), "two sequences' windows, all their pages"
    assert pools(9 * window + 40 * each) == (40, 9), "one sequence, and a shorter context"
    with pytest.raises(CapacityError, match="smaller --quant"):
        pools(9 * window - each)


def test_states_are_reported_as_sequences() -> None:
    """Four layers of pages, 64 KiB in all, and one of states of 4 MiB, for four sequences."""
    groups = [PAGED, CacheGroup("state")]
    wanted = Capacity.of(
        groups, [256, 4], vocab_size=100, context=1024, max_batch=4, max_step_tokens=64
    )
    manifest: Any = Manifest()
    (whole,) = Manifest.caches
    state = TensorSpec(name="delta", dtype="float32", shape=("num_pages", 16, 256, 256))
    manifest.caches = (
        replace(whole, layers=whole.layers[:4], tensors=whole.tensors[:4]),
        replace(whole, kind="state", page_size=0, pool=4, layers=(9,), tensors=(state,)),
    )
    page, slot = (cache.bytes_per_page for cache in manifest.caches)
    assert (page, slot) == (64 << 10, 4 << 20)

    def note_of(memory: DeviceMemory) -> str:
        return fit(wanted, manifest, memory, fixed=False).note or ""

    assert note_of(DeviceMemory(BASE + 4 * slot + 256 * page)) == ""
    waiting = "in all, so some requests wait for others"
    few = f"room for 1600 tokens and 4 sequences {waiting}"
    assert note_of(DeviceMemory(BASE + 4 * slot + 100 * page)).endswith(few)
    tensor = "a layer's states are one tensor, of 1 sequence"
    one = f"{tensor}: room for 4096 tokens and 1 sequence {waiting}"
    assert note_of(DeviceMemory(None, 2 * slot - 1)) == one
    none = "pages are one tensor, of 4080 tokens and a layer's states .* of 0 sequences"
    with pytest.raises(CapacityError, match=none):
        note_of(DeviceMemory(None, slot - 1))


def test_this_machine_has_memory() -> None:
    found = available_bytes()
    assert found is None or found > 1 << 20


V2 = ("memory.max", "memory.current", "memory.stat", "")
V1 = (
    "memory/memory.limit_in_bytes",
    "memory/memory.usage_in_bytes",
    "memory/memory.stat",
    "total_",
)


@pytest.mark.parametrize(("limit", "used", "stat", "prefix"), [V2, V1])
def test_a_containers_cached_files_are_not_held_against_it(
    tmp_path: Path, limit: str, used: str, stat: str, prefix: str
) -> None:
    assert container_bytes(tmp_path) is None
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("1000\n")
    (tmp_path / used).write_text("900\n")
    assert container_bytes(tmp_path) == 100
    rows = {"anon": 300, f"{prefix}inactive_file": 400, f"{prefix}active_file": 50}
    (tmp_path / stat).write_text("".join(f"{name} {count}\n" for name, count in rows.items()))
    assert container_bytes(tmp_path) == 550
    (tmp_path / limit).write_text("max\n")
    assert container_bytes(tmp_path) is None


def test_the_plan_in_words() -> None:
    groups = [PAGED, CacheGroup("state")]
    both = Capacity.of(
        groups, [256, 7], vocab_size=100, context=1024, max_batch=4, max_step_tokens=512
    )
    assert plan_text(both) == (
        "4 requests at once, each within 1024 tokens, and room for "
        f"{256 * PAGED.page_size} tokens and 7 sequences in all (256 pages and 7 states)"
    )
