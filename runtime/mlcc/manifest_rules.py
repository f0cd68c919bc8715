"""What must hold between the numbers of a manifest, all of which are later multiplied, divided by,
allocated or handed to machine code.

The seal shows damage, but whoever edits a manifest can seal it again; what passes here reaches no
crash. What the code of a library was compiled for is asked of the library (`device/native.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mlcc.errors import ArtifactError

if TYPE_CHECKING:
    from mlcc.manifest import FileEntry, KvInfo, Manifest, WeightSpec

MANIFEST_NAME = "mlcc.json"
CHUNK_BYTES = 8 << 20
"""Files are hashed in chunks of this size, so that a browser can check a ranged fetch."""
DTYPE_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
AGAIN = "compile the model again or copy the folder again"
_INT32, _INT53 = 2**31 - 1, 2**53 - 1
"""What kernels count in; what JavaScript counts in."""
_HASH = re.compile(r"[0-9a-f]{64}")
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def check_relative(path: str) -> str:
    """A plain relative POSIX path that cannot leave its folder, or ArtifactError."""
    parts = PurePosixPath(path).parts
    plain = path == "/".join(parts) and ".." not in parts and not path.startswith("/")
    if not path or not plain or not path.isprintable() or any(c in path for c in '\\:*?"<>|'):
        raise ArtifactError(f"{MANIFEST_NAME} names the unsafe path {path!r:.200}; {AGAIN}")
    return path


def check_consistency(manifest: Manifest) -> None:
    """Raises ArtifactError at the first thing that does not fit."""
    for fault in _faults(manifest):
        raise ArtifactError(f"{MANIFEST_NAME} {fault}; {AGAIN}")


def _faults(manifest: Manifest) -> Iterator[str]:
    for entry in manifest.files:
        check_relative(entry.path)
        yield from _of_file(entry)
    paths = [entry.path for entry in manifest.files]
    yield from _twice("the file", paths)
    used = [manifest.library.path, *manifest.weights.shards, *manifest.alternatives]
    used += [manifest.model.licence] if manifest.model.licence else []
    absent = sorted(set(used) - set(paths))
    yield from (f"uses {path!r:.200} but lists no such file" for path in absent)
    dtypes = {tensor.dtype for tensor in manifest.kv.tensors}
    dtypes |= {tensor.dtype for tensor in manifest.weights.tensors}
    unknown = sorted(dtypes - set(DTYPE_BYTES))
    yield from (f"uses the unknown dtype {dtype!r:.40}" for dtype in unknown)
    yield from _out_of_range(manifest)
    yield from _of_pages(manifest.kv)
    yield from _of_weights(manifest)
    yield from _of_sums(manifest)


def _of_file(entry: FileEntry) -> Iterator[str]:
    if not 0 <= entry.bytes <= _INT53 or len(entry.chunks) != -(-entry.bytes // CHUNK_BYTES):
        yield f"has a wrong chunk count for {entry.path}"
    if not all(_HASH.fullmatch(each) for each in (entry.sha256, *entry.chunks)):
        yield f"has a hash that is none for {entry.path}"
    if len(entry.chunks) < 2 and entry.sha256 != (*entry.chunks, _EMPTY)[0]:
        yield f"has two hashes for {entry.path}"


def _out_of_range(manifest: Manifest) -> Iterator[str]:
    model, kv, limits, memory = manifest.model, manifest.kv, manifest.limits, manifest.memory
    rows = [
        ("model.vocab_size", model.vocab_size, 1, _INT32),
        *(("model.eos_token_ids", token, 0, model.vocab_size - 1) for token in model.eos_token_ids),
        ("kv.page_size", kv.page_size, 1, 1 << 16),
        ("kv.num_pages", kv.num_pages, 1, _INT32),
        ("limits.context", limits.context, 1, _INT32),
        ("limits.max_batch", limits.max_batch, 1, 1 << 16),
        ("limits.max_step_tokens", limits.max_step_tokens, 1, _INT32),
        ("limits.max_step_pages", limits.max_step_pages, 1, _INT32),
        ("limits.window", 1 if limits.window is None else limits.window, 1, _INT32),
        ("memory.weights_bytes", memory.weights_bytes, 0, _INT53),
        ("memory.kv_bytes", memory.kv_bytes, 0, _INT53),
        ("memory.workspace_bytes", memory.workspace_bytes, 0, _INT53),
    ]
    for name, value, least, most in rows:
        if not least <= value <= most:
            yield f"has {name} {value!s:.40}, which is not within {least} .. {most}"


def _of_pages(kv: KvInfo) -> Iterator[str]:
    """Page tensors are [num_pages, 2, heads, page_size, width]."""
    if not kv.tensors:
        yield "has no kv.tensors"
    for tensor in kv.tensors:
        sizes = [size for size in tensor.shape[1:] if isinstance(size, int) and size > 0]
        sound = tensor.shape[:1] == ("num_pages",) and len(sizes) == len(tensor.shape) - 1 == 4
        if not sound or prod(sizes) > _INT32 or sizes[2] != kv.page_size:
            shape = ", ".join(map(str, tensor.shape[:6]))
            yield f"has pages [{shape:.80}] that are not of kv.page_size {kv.page_size}"


def _of_weights(manifest: Manifest) -> Iterator[str]:
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


def _of_sums(manifest: Manifest) -> Iterator[str]:
    """Plans are made with sums; weights, pages and limits are what is really there."""
    kv, limits, memory = manifest.kv, manifest.limits, manifest.memory
    if memory.weights_bytes != _bytes(manifest.weights.tensors):
        yield "has a memory.weights_bytes that is not the sum of its weights"
    page = sum(prod(map(int, t.shape[1:])) * DTYPE_BYTES[t.dtype] for t in kv.tensors)
    if memory.kv_bytes != kv.num_pages * page:
        yield "has a memory.kv_bytes that is not kv.num_pages of its pages"
    longest = -(-limits.context // kv.page_size)
    if kv.num_pages < longest or limits.max_step_pages < longest * limits.max_batch:
        yield f"has too few pages for limits.context {limits.context}"
    if limits.max_step_tokens < limits.max_batch:
        yield "has a limits.max_step_tokens below limits.max_batch"


def _bytes(tensors: Iterable[WeightSpec]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _twice(what: str, names: list[str]) -> Iterator[str]:
    if len(set(names)) != len(names):
        yield f"lists {what} {Counter(names).most_common(1)[0][0]!r:.200} twice"
