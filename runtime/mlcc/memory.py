"""Memory is planned before anything is loaded: what fits is decided here, from the manifest.

Pages are what gives: a plan with fewer of them answers fewer long requests at once, and says so.
Reads the system's figures; allocates nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from mlcc.engine.batch import Capacity
from mlcc.errors import CapacityError
from mlcc.manifest import DTYPE_BYTES, Manifest, TensorSpec
from mlcc.sizes import apart, size

RESERVE_BYTES = 256 << 20
"""Left for Python, the server and the system."""
SMALLEST_CONTEXT = 256


@dataclass(frozen=True)
class Plan:
    """A capacity that fits, and what the user should know about it."""

    capacity: Capacity
    note: str | None = None


@dataclass(frozen=True)
class Room:
    """What a device offers; None = unknown, and then nothing is checked."""

    bytes: int | None = None
    """For weights, workspace and pages together."""
    tensor_bytes: int | None = None
    """For one tensor: WebGPU bounds what a kernel's argument may hold."""
    why: str = ""
    """Where `bytes` (spelled {}) comes from, if it is not the memory that is free."""
    reserve: int = RESERVE_BYTES
    """How many of `bytes` are left alone."""


UNKNOWN = Room()


def plan_capacity(manifest: Manifest, *, max_batch: int | None, context: int | None) -> Capacity:
    """The sizes to run with: what was asked for, within what was compiled in."""
    limits, kv = manifest.limits, manifest.kv
    context = _within("--context", context, limits.context)
    max_batch = _within("--max-batch", max_batch, limits.max_batch)
    pages = -(-context // kv.page_size) * max_batch
    return Capacity(
        vocab_size=manifest.model.vocab_size,
        context=context,
        page_size=kv.page_size,
        num_pages=min(kv.num_pages, pages),
        max_batch=max_batch,
        max_step_tokens=limits.max_step_tokens,
        window=limits.window,
    )


def _within(option: str, wanted: int | None, most: int) -> int:
    if wanted is not None and not 1 <= wanted <= most:
        raise CapacityError(
            f"{option} {wanted} is not within 1 .. {most}, for which the model was compiled; "
            f"compile it again with `mlcc compile {option} {wanted}` or ask for less"
        )
    return wanted or most


def fit(wanted: Capacity, manifest: Manifest, room: Room, *, fixed: bool) -> Plan:
    """`wanted`, or less of it, in the room there is.

    First the page pool shrinks to one longest sequence, then the context, unless `fixed` (the user
    gave the sizes). Raises CapacityError with both numbers and what to type.
    """
    pages, why = wanted.num_pages, ""
    most = _most_pages(manifest, room.tensor_bytes)
    if most < pages:
        pages, why = most, f"a layer's pages are one tensor, of {most * wanted.page_size} tokens"
    needed = needed_bytes(wanted, manifest) + room.reserve
    needs = size(needed)
    if room.bytes is not None and room.bytes < needed:
        left = room.bytes - needed_bytes(replace(wanted, num_pages=0), manifest) - room.reserve
        if (by_bytes := max(0, left) // page_bytes(manifest)) < pages:
            needs, has = apart(needed, room.bytes)
            pages, why = by_bytes, (room.why or "{} of memory are free").format(has)
    if pages >= wanted.num_pages:
        return Plan(wanted)
    context = min(wanted.context, pages * wanted.page_size)
    too_small = context < min(SMALLEST_CONTEXT, wanted.context)
    if too_small or (fixed and context < wanted.context):
        raise CapacityError(_refusal(needs, wanted, why, context))
    fitted = replace(wanted, context=context, num_pages=pages)
    return Plan(fitted, _note(wanted, fitted, why))


def page_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A pages' tensor without the leading "num_pages", its only symbolic size."""
    return tuple(int(size) for size in spec.shape[1:])


def _most_pages(manifest: Manifest, tensor_bytes: int | None) -> int:
    """Pages of a layer that one tensor may hold: by its bytes, and by kernels' int32 indices."""
    spec = manifest.kv.tensors[0]
    elements = prod(page_shape(spec))
    most = (2**31 - 1) // elements
    if tensor_bytes is not None:
        most = min(most, tensor_bytes // (elements * DTYPE_BYTES[spec.dtype]))
    return most


def needed_bytes(capacity: Capacity, manifest: Manifest) -> int:
    """Bytes of weights, workspace and pages."""
    fixed = manifest.memory.weights_bytes + manifest.memory.workspace_bytes
    return fixed + capacity.num_pages * page_bytes(manifest)


def page_bytes(manifest: Manifest) -> int:
    """Bytes of one page over all layers."""
    return manifest.memory.kv_bytes // max(1, manifest.kv.num_pages)


def available_bytes() -> int | None:
    """Memory that can be had now without swapping, within the container's limit; None = unknown."""
    found = [b for b in (_meminfo(), container_bytes(), _sysconf()) if b is not None]
    return min(found) if found else None


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


def container_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the container may still take, by cgroup version 2 or 1; None = no limit is known.

    The kernel counts cached files (our own weights, once hashed) as used, and gives them up when
    memory is asked for.
    """
    v1 = folder / "memory"
    for limit, used, stat, prefix in (
        (folder / "memory.max", folder / "memory.current", folder / "memory.stat", ""),
        (v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat", "total_"),
    ):
        try:
            most, taken = int(limit.read_text()), int(used.read_text())
        except (OSError, ValueError):  # not this version, or "max"
            continue
        cached = _cached(stat, (f"{prefix}inactive_file", f"{prefix}active_file"))
        return max(0, most - max(0, taken - cached))
    return None


def _cached(stat: Path, names: tuple[str, ...]) -> int:
    try:
        rows = [line.split() for line in stat.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in names)


def _sysconf() -> int | None:
    """All physical memory: macOS and others do not say what is free."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _refusal(needs: str, wanted: Capacity, why: str, context: int) -> str:
    advice = "close other programs, or compile with a smaller --quant"
    if context >= SMALLEST_CONTEXT:
        advice = f"use --context {context} or close other programs"
    return f"the model needs {needs} for a context of {wanted.context} and {why}; {advice}"


def _note(wanted: Capacity, fitted: Capacity, why: str) -> str:
    if fitted.context < wanted.context:
        return f"{why}: the context is {fitted.context} tokens instead of {wanted.context}"
    tokens = fitted.num_pages * fitted.page_size
    return f"{why}: room for {tokens} tokens in all, so long requests wait for each other"
