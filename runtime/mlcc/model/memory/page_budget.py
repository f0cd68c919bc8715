"""Page budget: grows the page pools beyond the need of running requests, for the prefix cache.

`planner.py` decides what requests need; this module only adds pages to that.
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
"""Share of the free memory that weights and caches may take together."""
MOST = 4
"""Unless `--memory` is given, pools grow to at most MOST times the need of running requests: a
desktop has other uses for its memory."""


def memory_share(memory: DeviceMemory, share: float | None) -> DeviceMemory:
    """The share of a device's memory that `--memory` asks for. Raises CapacityError if the free
    memory is unknown."""
    if share is None:
        return memory
    if memory.free_bytes is None:
        raise CapacityError(
            "--memory is a share of the memory that is free, which this device does not tell; "
            "use --kv-pages"
        )
    return replace(memory, free_bytes=int(share * memory.free_bytes), reserve_bytes=0)


def with_pages(wanted: Capacity, pages: int | None) -> Capacity:
    """A capacity with `pages` pages in the paged groups, or in the window groups if there are no
    paged ones. Other pools are unchanged."""
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
    """Grow all pools by the same factor, as far as `memory` allows."""
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
