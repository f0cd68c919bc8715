"""Consistency checks of the numbers in a manifest, which are later used for allocations and in
machine code.

The checksum detects damage, but an edited manifest can be given a new checksum; these checks ensure
that it cannot cause a crash. The sizes a library was compiled for are compared when it is loaded.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import PurePosixPath

from mlcc.artifact.schema import (
    ACTIVATION_DTYPES,
    AGAIN,
    CHUNK_BYTES,
    DTYPE_BYTES,
    MANIFEST_NAME,
    MOST_ADAPTER_RANK,
    MOST_ADAPTER_SLOTS,
    MOST_RANKS,
    PAGE_FORMS,
    CacheInfo,
    FileEntry,
    ManifestRecord,
    VisionInfo,
    WeightSpec,
    tables_of,
)
from mlcc.engine.batch.tables import TOKEN_COLUMNS
from mlcc.errors import ArtifactError

_INT32, _INT53 = 2**31 - 1, 2**53 - 1
"""The largest index of kernels, and the largest exact integer of JavaScript."""
_HASH = re.compile(r"[0-9a-f]{64}")
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def check_relative(path: str) -> str:
    """A plain relative POSIX path that cannot leave its folder, or ArtifactError."""
    parts = PurePosixPath(path).parts
    plain = path == "/".join(parts) and ".." not in parts and not path.startswith("/")
    if not path or not plain or not path.isprintable() or any(c in path for c in '\\:*?"<>|'):
        raise ArtifactError(f"{MANIFEST_NAME} names the unsafe path {path!r:.200}; {AGAIN}")
    return path


def check_consistency(manifest: ManifestRecord) -> None:
    """Raises ArtifactError at the first thing that does not fit."""
    for fault in _faults(manifest):
        raise ArtifactError(f"{MANIFEST_NAME} {fault}; {AGAIN}")


def _faults(manifest: ManifestRecord) -> Iterator[str]:
    for entry in manifest.files:
        check_relative(entry.path)
        yield from _of_file(entry)
    paths = [entry.path for entry in manifest.files]
    yield from _twice("the file", paths)
    used = [manifest.library.path, *manifest.weights.shards, *manifest.alternatives]
    used += [manifest.model.licence] if manifest.model.licence else []
    used += [shard for own in manifest.ranks.shards for shard in own] if manifest.ranks else []
    absent = sorted(set(used) - set(paths))
    yield from (f"uses {path!r:.200} but lists no such file" for path in absent)
    dtypes = {tensor.dtype for cache in manifest.caches for tensor in cache.tensors}
    dtypes |= {tensor.dtype for tensor in manifest.weights.tensors}
    unknown = sorted(dtypes - set(DTYPE_BYTES))
    yield from (f"uses the unknown dtype {dtype!r:.40}" for dtype in unknown)
    if manifest.activation_dtype not in ACTIVATION_DTYPES:
        yield f"has activations in {manifest.activation_dtype!r:.40}, which nothing here computes"
    yield from _out_of_range(manifest)
    for cache in manifest.caches:
        yield from _of_cache(cache)
    yield from _of_embeddings(manifest)
    yield from _of_tables(manifest)
    yield from _of_adapters(manifest)
    yield from _of_encoder(manifest)
    yield from _of_vision(manifest)
    yield from _of_audio_input(manifest)
    yield from _of_audio(manifest)
    yield from _of_weights(manifest)
    yield from _of_ranks(manifest)
    yield from _of_sums(manifest)


def _of_file(entry: FileEntry) -> Iterator[str]:
    if not 0 <= entry.bytes <= _INT53 or len(entry.chunks) != -(-entry.bytes // CHUNK_BYTES):
        yield f"has a wrong chunk count for {entry.path}"
    if not all(_HASH.fullmatch(each) for each in (entry.sha256, *entry.chunks)):
        yield f"has a hash that is none for {entry.path}"
    if len(entry.chunks) < 2 and entry.sha256 != (*entry.chunks, _EMPTY)[0]:
        yield f"has two hashes for {entry.path}"


def _out_of_range(manifest: ManifestRecord) -> Iterator[str]:
    model, limits, memory = manifest.model, manifest.limits, manifest.memory
    rows = [
        ("model.vocab_size", model.vocab_size, 1, _INT32),
        *(("model.eos_token_ids", token, 0, model.vocab_size - 1) for token in model.eos_token_ids),
        ("model.parameters", model.parameters, 0, _INT53),
        ("caches", len(manifest.caches), int(manifest.encoder is None), 64),
        *(("caches[].page_size", cache.page_size, 1, 1 << 16) for cache in manifest.caches),
        *(("caches[].window", cache.window or 1, 1, _INT32) for cache in manifest.caches),
        *(("caches[].pool", cache.pool, 1, _INT32) for cache in manifest.caches),
        ("limits.context", limits.context, 1, _INT32),
        ("limits.max_batch", limits.max_batch, 1, 1 << 16),
        ("limits.max_step_tokens", limits.max_step_tokens, 1, _INT32),
        ("limits.max_rows", limits.max_rows, 1, _INT32),
        ("limits.max_step_pages", limits.max_step_pages, 0, 1 << 28),
        ("limits.max_copies", limits.max_copies, 1, _INT32),
        ("memory.weights_bytes", memory.weights_bytes, 0, _INT53),
        ("memory.cache_bytes", memory.cache_bytes, 0, _INT53),
        ("memory.workspace_bytes", memory.workspace_bytes, 0, _INT53),
    ]
    for name, value, least, most in rows:
        if not least <= value <= most:
            yield f"has {name} {value!s:.40}, which is not within {least} .. {most}"


def _of_cache(cache: CacheInfo) -> Iterator[str]:
    """Tensors are ["num_pages", ...], equally many per layer; paged ones have a page_size axis."""
    if not cache.layers or len(cache.tensors) % len(cache.layers):
        yield f"has {len(cache.tensors)} tensors for {len(cache.layers)} layers of a cache"
    if len(set(cache.layers)) != len(cache.layers) or min(cache.layers, default=0) < 0:
        yield "has a cache with layers that are none"
    if cache.form not in PAGE_FORMS:
        yield f"has pages of form {cache.form!r:.40}; this mlcc knows {', '.join(PAGE_FORMS)}"
    for tensor in cache.tensors:
        sizes = [size for size in tensor.shape[1:] if isinstance(size, int) and size > 0]
        sound = tensor.shape[:1] == ("num_pages",) and len(sizes) == len(tensor.shape) - 1
        paged = cache.kind == "state" or cache.page_size in sizes
        if not sound or not paged or not sizes or prod(sizes) > _INT32:
            shape = ", ".join(map(str, tensor.shape[:6]))
            yield f"has a cache [{shape:.80}] that is not of page_size {cache.page_size}"


def _of_tables(manifest: ManifestRecord) -> Iterator[str]:
    try:
        expected = tables_of(manifest.layout)
    except ValueError as error:
        yield f"has {error}"
        return
    if manifest.tables != expected:
        yield "has tables that are not those of its limits"


def _of_adapters(manifest: ManifestRecord) -> Iterator[str]:
    if (room := manifest.adapters) is None:
        return
    modules = [name for site in room.sites for name in site.modules]
    sizes = [size for site in room.sites for size in (site.inputs, *site.outputs)]
    paired = all(len(site.modules) == len(site.outputs) for site in room.sites)
    sound = 1 <= room.slots <= MOST_ADAPTER_SLOTS and 1 <= room.rank <= MOST_ADAPTER_RANK
    if not modules or not paired or not sound or not all(0 < size <= _INT32 for size in sizes):
        yield "has room for adapters that makes no sense"
    elif any(prod(shape) > _INT32 for shape in room.shapes):
        yield "has room for adapters beyond what kernels count in"
    yield from _twice("the adapted module", modules)


def _of_embeddings(manifest: ManifestRecord) -> Iterator[str]:
    columns, room = manifest.token_columns, manifest.embeddings
    if columns != tuple(name for name in TOKEN_COLUMNS if name in columns):
        yield f"has columns of tokens that make no sense: {columns!r:.80}"
    if room is not None:
        sound = room.slots >= 0 and room.hidden >= 0 and 1 <= room.rows <= _INT32
        if not sound or not 1 <= room.width <= 1 << 20:
            yield "has embeddings of no sound shape"
    hidden = room.hidden if room else 0
    if ("hidden_row" in columns) != (hidden > 0) or hidden > manifest.limits.max_step_tokens:
        yield "has no place for the hidden states of a step's tokens, or one that no layer reads"
    if manifest.vision is not None and (room is None or not room.slots):
        yield "has a vision tower, and a step has no room for its rows"


def _of_encoder(manifest: ManifestRecord) -> Iterator[str]:
    if (info := manifest.encoder) is None:
        return
    tasks, activations = (
        ("embed", "score", "classify", "vision", "audio"),
        ("none", "sigmoid", "softmax"),
    )
    known = info.task in tasks and info.pooling in ("cls", "mean", "last")
    known = known and info.activation in activations and info.segments in (1, 2)
    named = info.width if info.task == "classify" else 0
    if not known or not 1 <= info.width <= 1 << 20 or (info.task == "score" and info.width != 1):
        yield "has an encoder that makes no sense"
    if len(info.labels) != named and not (info.task == "score" and len(info.labels) == 1):
        yield "has other classes than numbers of a row"
    if info.default_prompt and info.default_prompt not in info.prompts:
        yield "has no prompt of the name of its default"
    limits = manifest.limits
    if limits.max_step_tokens < limits.context or limits.max_rows < limits.max_batch:
        yield "has steps too small for an encoder's texts"
    if any(cache.kind == "state" for cache in manifest.caches):
        yield "has an encoder that keeps more than a step"


def _of_vision(manifest: ManifestRecord) -> Iterator[str]:
    """Sizes are positive and whole rows; a processor that this mlcc does not know is refused with
    the first image, so that the text part still runs."""
    if (info := manifest.vision) is None:
        return
    check_relative(info.folder)
    side = info.patch_size * info.merge_size
    sizes = (info.image_size, info.longest_edge, info.max_tiles, info.min_pixels, info.max_pixels)
    sound = 1 <= info.patch_size <= 1024 and 1 <= info.merge_size <= 64
    sound = sound and all(0 <= size <= _INT32 for size in sizes)
    blocks = info.image_size // info.patch_size % info.merge_size if sound else 0
    if not sound or blocks or info.image_size > 1 << 14:
        yield "has a vision tower of no sound size"
    if not 0 <= info.image_token_id < manifest.model.vocab_size or not info.image_token:
        yield "has an image token that is none of its tokens"
    if info.window_size < 0 or (sound and info.window_size % side):
        yield "has a vision tower with windows of no whole rows"
    if len(info.mean) != 3 or len(info.std) != 3 or not all(value > 0 for value in info.std):
        yield "has images without three channels"
    any_size = info.window_size or info.position_grid or info.position_axes or not info.image_size
    if info.class_row and any_size:
        yield "has a vision tower with a class token and images of any size"
    square = info.processor in ("idefics3", "gemma3", "llava", "internvl", "llava_onevision")
    by_edge = info.processor in ("idefics3", "pixtral")
    if (square and not info.image_size) or (by_edge and not info.longest_edge):
        yield "has a processor of images without their size"
    if info.processor == "qwen2_vl" and not side * side <= info.min_pixels <= info.max_pixels:
        yield "has a processor of images without bounds of their pixels"
    if info.processor == "gemma4" and not side * side <= info.max_pixels:
        yield "has a processor of images without their area"
    if not 0 <= info.position_axes <= 1 << 16:
        yield "has a vision tower with positions of no sound number"
    if info.processor == "llava_onevision":
        yield from _of_grids(manifest, info)
    if manifest.encoder is not None:
        yield "has a vision tower and an encoder"


def _of_grids(manifest: ManifestRecord, info: VisionInfo) -> Iterator[str]:
    """Grids are whole tiles, and the learned row is as wide as a step's rows."""
    side = info.image_size
    whole = all(0 < a <= 1 << 14 and a % side == 0 for grid in info.grids for a in grid)
    if not info.grids or info.max_tiles < 1 or not side or not whole:
        yield "has grids of no whole tiles"
    width = 0 if manifest.embeddings is None else manifest.embeddings.width
    try:
        size = len(b64decode(info.newline, validate=True))
    except ValueError:
        size = 0
    if not size or size != 4 * width:
        yield "has a learned row of another width than its steps'"


def _of_audio(manifest: ManifestRecord) -> Iterator[str]:
    """Its steps have room for the rows of a window, and its tokens are of the vocabulary."""
    if (info := manifest.audio) is None:
        return
    check_relative(info.folder)
    if not 1 <= info.bins <= 512 or not 1 <= info.rows <= 1 << 16:
        yield "has an audio tower of no sound size"
    room = manifest.embeddings
    if room is None or room.slots < info.rows or "source_row" not in manifest.token_columns:
        yield "has an audio tower, and a step has no room for its rows"
    if not 0 <= info.alignment_heads <= 1 << 12:
        yield "has an audio tower of no number of alignment heads"
    wanted = (info.start_id, info.no_timestamps_id, *info.languages.values())
    optional = (info.transcribe_id, info.translate_id, info.previous_id, info.no_speech_id)
    vocabulary = manifest.model.vocab_size
    if not all(0 <= token < vocabulary for token in wanted):
        yield "has an audio tower whose tokens are none of the model's"
    if not all(-1 <= token < vocabulary for token in optional):
        yield "has an audio tower whose tasks are none of the model's tokens"
    if manifest.encoder is not None or manifest.vision is not None:
        yield "has an audio tower and another one"


def _of_audio_input(manifest: ManifestRecord) -> Iterator[str]:
    """Its steps have room for the rows of a clip, which are whole. A processor that this mlcc does
    not know is refused with the first sound, so that the text part still runs."""
    if (info := manifest.audio_input) is None:
        return
    check_relative(info.folder)
    sound = 1 <= info.bins <= 512 and 1 <= info.clip_rows <= 1 << 16 and 1 <= info.pool <= 64
    sound = sound and 1 <= info.most_seconds <= 1 << 16 and 0 <= info.chunk_rows <= info.clip_rows
    if not sound or info.clip_rows % info.pool or info.chunk_rows % info.pool:
        yield "has an audio tower of no sound size"
    room = manifest.embeddings
    if sound and (room is None or room.slots < info.clip_rows // info.pool):
        yield "has an audio tower, and a step has no room for its rows"
    if not 0 <= info.audio_token_id < manifest.model.vocab_size or not info.audio_token:
        yield "has an audio token that is none of its tokens"
    if manifest.encoder is not None or manifest.audio is not None:
        yield "has an audio tower and another one"


def _of_weights(manifest: ManifestRecord) -> Iterator[str]:
    tensors = manifest.weights.tensors
    yield from _twice("the weight", [tensor.name for tensor in tensors])
    held: dict[str, int] = {}
    for tensor in tensors:
        if len(tensor.shape) > 8 or not all(0 < size <= _INT53 for size in tensor.shape):
            yield f"has a weight {tensor.name!r:.80} of no sound shape"
        held[tensor.shard] = held.get(tensor.shard, 0) + tensor.nbytes
    for entry in manifest.files:
        if entry.bytes < held.get(entry.path, 0):
            yield f"has more weights in {entry.path} than it has bytes"


def _of_ranks(manifest: ManifestRecord) -> Iterator[str]:
    """All ranks have as many shards as rank 0, of the same sizes."""
    if manifest.ranks is None:
        return
    first, *others = manifest.ranks.shards or ((),)
    if not 1 <= len(others) < MOST_RANKS or not first:
        yield f"has {len(others) + 1} ranks, which is not within 2 .. {MOST_RANKS}"
    if not set(first) <= set(manifest.weights.shards):
        yield "has shards of rank 0 that hold no weights"
    yield from _twice("the shard of a rank", [s for own in manifest.ranks.shards for s in own])
    sizes = {entry.path: entry.bytes for entry in manifest.files}
    for rank, own in enumerate(others, 1):
        if [sizes.get(shard) for shard in own] != [sizes.get(shard) for shard in first]:
            yield f"has shards of rank {rank} that are not as rank 0's"
    if manifest.adapters is not None or manifest.encoder is not None:
        yield "has ranks, and adapters or an encoder"
    if manifest.target.device not in ("cpu", "cuda"):
        yield f"has ranks on {manifest.target.device!r:.40}, where none are built"


def _of_sums(manifest: ManifestRecord) -> Iterator[str]:
    """The planner uses the sums; they must match weights, pages and limits."""
    limits, memory = manifest.limits, manifest.memory
    if memory.weights_bytes != _bytes(manifest.weights.tensors):
        yield "has a memory.weights_bytes that is not the sum of its weights"
    if memory.cache_bytes != sum(cache.pool * cache.bytes_per_page for cache in manifest.caches):
        yield "has a memory.cache_bytes that is not the sum of its pools"
    entries = 0
    for cache in manifest.caches:
        longest = cache.group.most_pages(limits.context, limits.max_step_tokens)
        entries += longest if cache.group.has_pages else 0
        if cache.pool < longest:
            yield f"has too few pages for limits.context {limits.context}"
    if limits.max_step_pages < entries * limits.max_batch:
        yield f"has too few entries of page lists for limits.context {limits.context}"
    if limits.max_step_tokens < limits.max_batch:
        yield "has a limits.max_step_tokens below limits.max_batch"


def _bytes(tensors: Iterable[WeightSpec]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _twice(what: str, names: list[str]) -> Iterator[str]:
    if len(set(names)) != len(names):
        yield f"lists {what} {Counter(names).most_common(1)[0][0]!r:.200} twice"
