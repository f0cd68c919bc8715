"""Memory plan of a tab: decides from the manifest what fits the page's GPU, before anything else is
fetched.

The arithmetic is in `model.memory`. WebGPU does not report how much memory there is, so the caches
get a fixed budget, which is halved if the GPU fails to allocate it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from mlcc.artifact.manifest import KERNEL_INTERFACE, Manifest, abi_hash
from mlcc.artifact.records import to_plain
from mlcc.artifact.schema import page_shape
from mlcc.artifact.text_files import text_files
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.kv_cache.cache_manager import pages_for
from mlcc.errors import ArtifactError, CapacityError, DeviceError
from mlcc.limits import check_all
from mlcc.model.memory.planner import (
    SMALLEST_CONTEXT,
    cache_bytes,
    fit,
    longest,
    needed_bytes,
    plan_capacity,
    pool_sizes_text,
)
from mlcc.util.memory import DeviceMemory
from mlcc.util.sizes import apart

TAB_BATCH = 4
"""Default number of requests answered at once in a tab."""
TAB_CACHE_BYTES = 1 << 30
"""For pages and states, if the GPU's memory is unknown."""


def make_plan(
    manifest: Manifest, adapter: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the plan for `web/src/plan.ts`, or {"instead": paths of the manifests to use,
    best first}.

    Raises ArtifactError, CapacityError or DeviceError.
    """
    if manifest.library.kind != "wasm":
        raise ArtifactError(
            f"the model was compiled for '{manifest.target.name}', not for browsers; compile it "
            "with `mlcc compile --target webgpu`",
            code="wrong_target",
        )
    _check_abi(manifest)
    if lacking := _lacking(manifest, adapter):
        return {"instead": _alternatives(manifest, *lacking)}
    _check_weights(manifest, adapter["tensor_bytes"])
    _check_adapters(manifest, adapter["tensor_bytes"])
    check_all(options)
    most = manifest.limits.max_batch
    usual = min(TAB_BATCH, most) if manifest.encoder is None else most  # encoders have no caches
    wanted = plan_capacity(
        manifest,
        max_batch=options.get("max_batch") or usual,
        context=options.get("context"),
        max_step_tokens=options.get("max_step_tokens"),
    )
    fixed = options.get("context") is not None
    plan = fit(wanted, manifest, _memory(manifest, wanted, adapter), fixed=fixed)
    return _to_plain(manifest, plan.capacity, [plan.note] if plan.note else [], fixed)


def halve(manifest: Manifest, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with about half the pages and states, for a GPU that failed to allocate them.

    Raises CapacityError if they are at the minimum already.
    """
    fixed, pools = bool(plan["fixed"]), tuple(plan["capacity"]["pools"])
    before = capacity_of(manifest, plan)
    shortest = before.context if fixed else min(SMALLEST_CONTEXT, before.context)
    least = tuple(pages_for(shortest, group) for group in before.groups)
    if all(pages <= few for few, pages in zip(least, pools, strict=True)):
        raise CapacityError(
            f"the GPU's memory does not hold the model with a context of {before.context}; close "
            "other tabs and programs, or take a smaller model",
            code="out_of_memory",
        )
    halves = tuple(max(few, pages // 2) for few, pages in zip(least, pools, strict=True))
    after = replace(before, pools=halves, context=longest(halves, before))
    now, then = (pool_sizes_text(each, before.groups) for each in (halves, pools))
    note = f"the GPU's memory was full: room for {now} instead of {then}"
    return _to_plain(manifest, after, [*plan["notes"], note], fixed)


def _caches(manifest: Manifest, capacity: Capacity) -> Iterator[dict[str, Any]]:
    """The tensors that `forward` takes as caches; the embeddings are the last of them."""
    for cache, pool in zip(manifest.caches, capacity.pools, strict=True):
        for spec in cache.tensors:
            yield {"dtype": spec.dtype, "shape": [pool, *page_shape(spec)]}
    if (rows := manifest.embeddings) is not None:
        yield {"dtype": "float32", "shape": [rows.rows, rows.width]}


def capacity_of(manifest: Manifest, plan: Mapping[str, Any]) -> Capacity:
    """Return the capacity of a plan; the table layout is the manifest's."""
    sizes, rows = dict(plan["capacity"]), manifest.embeddings
    slots = rows.slots if rows else 0
    pools = tuple(sizes.pop("pools"))
    return Capacity(layout=manifest.layout, pools=pools, embedding_slots=slots, **sizes)


def needs_f16(manifest: Manifest) -> bool:
    """Return whether the library needs a GPU adapter with `shader-f16`."""
    return bool(manifest.target.options.get("f16"))


def subgroup_matrix(manifest: Manifest) -> int:
    """Return the edge of the subgroup matrices that the library multiplies; 0: none."""
    return int(manifest.target.options.get("subgroup_matrix", 0))


def _check_abi(manifest: Manifest) -> None:
    """Check the ABI: the library contains the runtime that it was linked with, the rest is this
    Python's."""
    tools = manifest.tools
    if manifest.abi != abi_hash(tools.tvm, tools.tvm_ffi):
        raise ArtifactError(
            f"compiled by mlcc {tools.mlcc} for another ABI than this page's (kernel interface "
            f"{KERNEL_INTERFACE}); compile the model again, or reload the page if it is the older",
            code="wrong_abi",
        )


def _lacking(manifest: Manifest, adapter: Mapping[str, Any]) -> tuple[str, str] | None:
    """What the library needs and the GPU or browser lacks: (error's code, message)."""
    if needs_f16(manifest) and not adapter["f16"]:
        return (
            "no_f16",
            "this GPU does not compute in float16, for which the model was compiled; compile it "
            "again with --no-f16",
        )
    if manifest.target.options.get("packed_dot") and not adapter["packed_dot"]:
        return (
            "no_packed_dot",
            "this browser's WGSL has no packed_4x8_integer_dot_product, for which the model was "
            "compiled; compile it again without --activations 8, or use a newer browser",
        )
    edge = subgroup_matrix(manifest)
    if edge and edge not in adapter["subgroup_matrices"]:
        return (
            "no_subgroup_matrix",
            f"this browser's GPU has no subgroup matrices of {edge} x {edge}, for which the model "
            "was compiled; compile it again without --subgroup-matrices",
        )
    return None


def _alternatives(manifest: Manifest, code: str, message: str) -> list[str]:
    if not manifest.alternatives:
        raise DeviceError(message, code=code)
    return list(manifest.alternatives)


def _check_weights(manifest: Manifest, tensor_bytes: int) -> None:
    largest = max(manifest.weights.tensors, key=lambda spec: spec.nbytes, default=None)
    if largest and largest.nbytes > tensor_bytes:
        has, most = apart(largest.nbytes, tensor_bytes)
        raise CapacityError(
            f"the weight {largest.name} has {has}, and this GPU lets a kernel read {most}; take a "
            "smaller model, or compile with a smaller --quant",
            code="weight_too_large",
        )


def _check_adapters(manifest: Manifest, tensor_bytes: int) -> None:
    shapes = manifest.adapters.shapes if manifest.adapters else []
    largest = max((4 * prod(shape) for shape in shapes), default=0)
    if largest > tensor_bytes:
        has, most = apart(largest, tensor_bytes)
        raise CapacityError(
            f"the slots for adapters have a tensor of {has}, and this GPU lets a kernel read "
            f"{most}; compile with fewer --lora-slots or a smaller --adapter-rank",
            code="adapters_too_large",
        )


def _adapters(manifest: Manifest) -> dict[str, Any] | None:
    """Return the tensors to allocate for LoRA slots, and the word of a step that counts the
    requests that use one."""
    if (room := manifest.adapters) is None:
        return None
    header = manifest.layout.header
    return {
        "tensors": [{"dtype": "float32", "shape": list(shape)} for shape in room.shapes],
        "adapted_word": header.at("adapted"),
    }


def _memory(manifest: Manifest, wanted: Capacity, adapter: Mapping[str, Any]) -> DeviceMemory:
    """WebGPU reports the largest tensor, but not the size of the memory."""
    tensor, known = adapter["tensor_bytes"], adapter.get("memory_bytes")
    if known is not None:
        return DeviceMemory(known, tensor, "the page gives it {}", reserve_bytes=0)
    empty = replace(wanted, pools=(0,) * len(wanted.pools))
    budget = needed_bytes(empty, manifest) + TAB_CACHE_BYTES
    why = f"a tab takes {TAB_CACHE_BYTES >> 20} MiB for caches"
    return DeviceMemory(budget, tensor, why, reserve_bytes=0)


def _to_plain(
    manifest: Manifest, capacity: Capacity, notes: list[str], fixed: bool
) -> dict[str, Any]:
    shards = set(manifest.weights.shards)
    memory = manifest.memory
    return {
        "model": manifest.model.name,
        "abi": manifest.abi,
        "interface": manifest.interface,
        "f16": needs_f16(manifest),
        "subgroup_matrix": subgroup_matrix(manifest),
        "functions": list(manifest.functions),
        "row_width": manifest.encoder.width if manifest.encoder else None,
        "embeddings": manifest.embeddings is not None and manifest.embeddings.slots > 0,
        "vision": None if manifest.vision is None else manifest.vision.folder,
        "audio": None if manifest.audio is None else manifest.audio.folder,
        "audioInput": None if manifest.audio_input is None else manifest.audio_input.folder,
        "capacity": {
            "vocab_size": capacity.vocab_size,
            "context": capacity.context,
            "pools": list(capacity.pools),
            "max_batch": capacity.max_batch,
            "max_step_tokens": capacity.max_step_tokens,
            "max_rows": capacity.max_rows,
        },
        "step_words": capacity.layout.words,
        "adjust_words": AdjustLayout.of(capacity.layout, capacity.vocab_size).words,
        "fixed": fixed,
        "caches": [*_caches(manifest, capacity)],
        "weights": to_plain(manifest.weights.tensors),
        "adapters": _adapters(manifest),
        "library": to_plain(manifest.file(manifest.library.path)),
        "text": to_plain(text_files(manifest)),
        "shards": [to_plain(entry) for entry in manifest.files if entry.path in shards],
        "bytes": {
            "weights": memory.weights_bytes,
            "caches": cache_bytes(capacity.pools, manifest),
            "workspace": memory.workspace_bytes,
            "adapters": manifest.adapters.nbytes if manifest.adapters else 0,
        },
        "notes": notes,
    }
