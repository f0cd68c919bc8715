"""What memory is left once every live request has its room: more pages, in which the prefix cache
keeps what was computed.

`memory.py` decides what requests need; this adds to it, and never takes from it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat

from mlcc.artifact.manifest import Manifest
from mlcc.engine.batch.batch import Capacity
from mlcc.errors import CapacityError
from mlcc.model.memory.planner import cache_bytes, most_pages, needed_bytes
from mlcc.util.memory import DeviceMemory

SHARE = 0.85
"""Of the memory that is free, what weights and caches may take together."""
MOST = 4
"""Unless a share was asked for, the pools grow to so many times what live requests need: a desktop
has other uses for its memory."""


def memory_share(memory: DeviceMemory, share: float | None) -> DeviceMemory:
    """The part of a device's memory that was asked for. Raises CapacityError if nobody knows how
    much memory there is."""
    if share is None:
        return memory
    if memory.free_bytes is None:
        raise CapacityError(
            "--memory is a share of the memory that is free, which this device does not tell; "
            "use --kv-pages"
        )
    return replace(memory, free_bytes=int(share * memory.free_bytes), reserve_bytes=0)


def with_pages(wanted: Capacity, pages: int | None) -> Capacity:
    """So many pages in groups that keep all tokens; where there is none, in those that keep a
    window. Other pools stay."""
    if pages is None:
        return wanted
    kinds = {group.kind for group in wanted.groups}
    kind = "paged" if "paged" in kinds else "window"
    if kind not in kinds:
        raise CapacityError(
            "this model has no pages (--kv-pages): it keeps a state of each request"
        )
    unit = max(group.page_size for group in wanted.groups if group.kind == kind)
    pools = tuple(
        pages * (unit // group.page_size) if group.kind == kind else pool
        for group, pool in zip(wanted.groups, wanted.pools, strict=True)
    )
    return replace(wanted, pools=pools)


def grow_pools(
    fitted: Capacity, manifest: Manifest, memory: DeviceMemory, share: float | None
) -> Capacity:
    """The pools as large as `room` allows, all by the same factor."""
    if memory.free_bytes is None:
        return fitted
    bytes_ = (
        memory.free_bytes
        if share is not None or not memory.reserve_bytes
        else int(SHARE * memory.free_bytes)
    )
    empty = replace(fitted, pools=(0,) * len(fitted.pools))
    left = bytes_ - memory.reserve_bytes - needed_bytes(empty, manifest)
    factor = left / cache_bytes(fitted.pools, manifest)
    if share is None:
        factor = min(factor, MOST)
    if factor <= 1:
        return fitted
    held = map(most_pages, manifest.caches, repeat(memory.tensor_bytes))
    pools = zip(fitted.pools, held, strict=True)
    return replace(fitted, pools=tuple(min(int(factor * pool), most) for pool, most in pools))
