"""Memory planner: decides from the manifest what fits, before anything is loaded.

If memory is short it reduces pages, windows and states, so that fewer or shorter requests run at
once, and adds a note. Allocates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from math import prod

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import DTYPE_BYTES, CacheInfo, page_shape
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import longest_sequence
from mlcc.errors import CapacityError
from mlcc.limits import BOUNDS
from mlcc.util.fast_dataclass import fast_dataclass
from mlcc.util.memory import DeviceMemory
from mlcc.util.sizes import apart, size

SMALLEST_CONTEXT = 256


@fast_dataclass(frozen=True)
class Fit:
    """A capacity that fits, with a note for the user if it is less than requested."""

    capacity: Capacity
    note: str | None = None
    streamed: bool = False
    """Whether experts are offloaded to their file (`expert_offload.py`)."""


def plan_capacity(
    manifest: Manifest,
    *,
    max_batch: int | None = None,
    context: int | None = None,
    max_step_tokens: int | None = None,
    max_rows: int | None = None,
) -> Capacity:
    """The sizes to run with: the requested ones, within the compiled limits.

    They bound the engine's plans and pools; tables and code are as compiled.
    """
    limits = manifest.limits
    context = _within("context", context, limits.context)
    max_batch = _within("max_batch", max_batch, limits.max_batch)
    max_step_tokens = _within("max_step_tokens", max_step_tokens, limits.max_step_tokens)
    max_rows = _within("max_rows", max_rows, limits.max_rows)
    longest = (c.group.most_pages(context, max_step_tokens) for c in manifest.caches)
    pools = zip(manifest.caches, longest, strict=True)
    return Capacity(
        vocab_size=manifest.model.vocab_size,
        context=context,
        layout=manifest.layout,
        pools=tuple(min(cache.pool, max_batch * pages) for cache, pages in pools),
        max_batch=max_batch,
        max_step_tokens=max_step_tokens,
        max_rows=max_rows,
        embedding_slots=manifest.embeddings.slots if manifest.embeddings else 0,
    )


def _within(bound: str, wanted: int | None, most: int) -> int:
    if wanted is not None and not 1 <= wanted <= most:
        option = BOUNDS[bound].option
        raise CapacityError(
            f"{option} {wanted} is not within 1 .. {most}, for which the model was compiled; "
            f"compile it again with `mlcc compile {option} {wanted}` or ask for less"
        )
    return wanted or most


def fit(wanted: Capacity, manifest: Manifest, memory: DeviceMemory, *, fixed: bool) -> Fit:
    """`wanted`, or the largest smaller capacity that fits `memory`.

    First the pools shrink to one longest sequence, then the context, unless `fixed` (the user gave
    the sizes). Raises CapacityError with both numbers and what to type.
    """
    held = tuple(map(most_pages, manifest.caches, repeat(memory.tensor_bytes)))
    pools = tuple(map(min, wanted.pools, held))
    cut = zip(pools, wanted.pools, wanted.groups, strict=True)
    room_held = pool_sizes((pool, group) for pool, most, group in cut if pool < most)
    why = " and ".join(f"a layer's {kind} are one tensor, of {n}" for kind, n in room_held.items())
    needed = needed_bytes(wanted, manifest) + memory.reserve_bytes
    needs = size(needed)
    if memory.free_bytes is not None:
        left = memory.free_bytes - needed_bytes(replace(wanted, pools=(0,) * len(pools)), manifest)
        left -= memory.reserve_bytes
        if cache_bytes(pools, manifest) > left:
            pools = _shrunk(replace(wanted, pools=pools), manifest, left)
            needs, has = apart(needed, memory.free_bytes)
            why = (memory.source or "{} of memory are free").format(has)
    if pools == wanted.pools:
        return Fit(wanted)
    context = longest(pools, wanted)
    too_small = context < min(SMALLEST_CONTEXT, wanted.context)
    if too_small or (fixed and context < wanted.context):
        raise CapacityError(_refusal(needs, wanted, why, context))
    fitted = replace(wanted, context=context, pools=pools)
    return Fit(fitted, _note(wanted, fitted, why))


def _shrunk(wanted: Capacity, manifest: Manifest, left: int) -> tuple[int, ...]:
    """Pools within `left` bytes, for as many sequences as leave pages for one of full length.

    Windows and states have a bound per sequence, so they shrink by whole sequences; pages give all
    the rest. All zero if one sequence's windows and states do not fit.
    """
    sequences = wanted.max_batch
    while sequences:
        pools = tuple(map(min, wanted.pools, _per_sequences(sequences, wanted)))
        over = left - cache_bytes(pools, manifest)
        pages = tuple(_pages_within(over, pools, manifest))
        if over >= 0 and (sequences == 1 or longest(pages, wanted) == wanted.context):
            return tuple(map(min, wanted.pools, pages))
        sequences //= 2
    return (0,) * len(wanted.pools)


def _per_sequences(sequences: int, wanted: Capacity) -> Iterator[int]:
    """Pools of windows and states for this number of sequences; no pages."""
    for group in wanted.groups:
        most = group.most_pages(wanted.context, wanted.max_step_tokens)
        yield 0 if group.kind == "paged" else sequences * most


def _pages_within(left: int, pools: tuple[int, ...], manifest: Manifest) -> Iterator[int]:
    """The pools, with pages of paged groups for as many tokens as `left` bytes hold."""
    paged = [cache for cache in manifest.caches if cache.kind == "paged"]
    unit = max((cache.page_size for cache in paged), default=1)  # all hold the same tokens
    units = left // max(1, sum(c.bytes_per_page * (unit // c.page_size) for c in paged))
    for cache, pool in zip(manifest.caches, pools, strict=True):
        yield units * (unit // cache.page_size) if cache.kind == "paged" else pool


def longest(pools: tuple[int, ...], wanted: Capacity) -> int:
    """The longest sequence that the pools hold."""
    return longest_sequence(pools, wanted.groups, wanted.context)


def pool_sizes(pools: Iterable[tuple[int, CacheGroup]]) -> dict[str, str]:
    """The size of pools over all sequences, in pages and states: {"pages": "1600 tokens"}.

    A window's pages count where no group keeps all tokens.
    """
    held: dict[str, list[int]] = {}
    for pool, group in pools:
        held.setdefault(group.kind, []).append(pool * (group.page_size if group.has_pages else 1))
    found = {}
    if pages := held.get("paged") or held.get("window"):
        found["pages"] = f"{min(pages)} tokens"
    if states := held.get("state"):
        found["states"] = f"{min(states)} sequence{'s' * (min(states) != 1)}"
    return found


def pool_sizes_text(pools: tuple[int, ...], groups: tuple[CacheGroup, ...]) -> str:
    """`pool_sizes` of all groups of a model, as one text."""
    return " and ".join(pool_sizes(zip(pools, groups, strict=True)).values())


def plan_text(capacity: Capacity) -> str:
    """The plan in words: requests, context, and the tokens that the pools hold."""
    kinds = {"paged": "pages", "window": "pages of windows", "state": "states"}
    pools = zip(capacity.pools, capacity.groups, strict=True)
    pages = " and ".join(f"{pool} {kinds[group.kind]}" for pool, group in pools)
    return (
        f"{capacity.max_batch} requests at once, each within {capacity.context} tokens, and room "
        f"for {pool_sizes_text(capacity.pools, capacity.groups)} in all ({pages})"
    )


def most_pages(cache: CacheInfo, tensor_bytes: int | None) -> int:
    """Pages of a layer that one tensor may hold: by its bytes, and by kernels' int32 indices."""
    most = 2**31 - 1
    for spec in cache.tensors:
        elements = prod(page_shape(spec))
        most = min(most, (2**31 - 1) // elements)
        if tensor_bytes is not None:
            most = min(most, tensor_bytes // (elements * DTYPE_BYTES[spec.dtype]))
    return most


def needed_bytes(capacity: Capacity, manifest: Manifest) -> int:
    """Bytes of weights, workspace, adapters and caches."""
    fixed = manifest.memory.weights_bytes + manifest.memory.workspace_bytes
    if manifest.adapters is not None:
        fixed += manifest.adapters.nbytes
    return fixed + cache_bytes(capacity.pools, manifest)


def cache_bytes(pools: tuple[int, ...], manifest: Manifest) -> int:
    """Bytes of the caches with pools of these sizes."""
    return sum(p * c.bytes_per_page for p, c in zip(pools, manifest.caches, strict=True))


def _refusal(needs: str, wanted: Capacity, why: str, context: int) -> str:
    advice = "close other programs, or compile with a smaller --quant"
    if context >= SMALLEST_CONTEXT:
        advice = f"use --context {context} or close other programs"
    return f"the model needs {needs} for a context of {wanted.context} and {why}; {advice}"


def _note(wanted: Capacity, fitted: Capacity, why: str) -> str:
    if fitted.context < wanted.context:
        return f"{why}: the context is {fitted.context} tokens instead of {wanted.context}"
    room = pool_sizes_text(fitted.pools, fitted.groups)
    return f"{why}: room for {room} in all, so some requests wait for others"
