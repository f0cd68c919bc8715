"""`mlcc.json`: everything a runtime must know about a compiled model before it loads it.

Standard library only, so that the compiler, the desktop, Pyodide and a phone read the same file.
It is not the artifact: files and devices are `artifact.py`'s. The policy for changes is in
docs/artifact.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import PurePosixPath
from typing import Any

from mlcc.engine.tables import CacheGroup, StepLayout
from mlcc.errors import ArtifactError
from mlcc.records import RecordError, from_plain, to_plain

MANIFEST_NAME = "mlcc.json"
SCHEMA_VERSION, OLDEST_SCHEMA = 3, 3
"""Of this file, and the oldest that is read: 3 has cache groups and tables. Others are refused."""
KERNEL_INTERFACE = 2
"""Of the library's functions: bump when an argument of `forward`, `sample`, ... or a column of a
step's tables changes. 2: a step is one buffer (`mlcc.engine.tables`)."""
CHUNK_BYTES = 8 << 20
"""Files are hashed in chunks of this size, so that a browser can check a ranged fetch."""
MAX_MANIFEST_BYTES = 64 << 20

DTYPE_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What the model is, whatever it runs on."""

    name: str
    architecture: str
    config: dict[str, Any]
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, str]
    """`bos_token`, `eos_token`, ... as the chat template spells them."""
    licence: str | None = None
    """Path of the model's licence file in the folder."""

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")


@dataclass(frozen=True, kw_only=True)
class QuantizationInfo:
    """The scheme by name, and its row (bits, group, symmetric, packing) as data."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TargetInfo:
    """The row the library was compiled for."""

    name: str
    device: str
    """Where it runs: cpu, cuda, metal, vulkan, webgpu."""
    arch: str
    """Instruction set of the host code: x86_64, aarch64, wasm32."""
    triple: str
    """LLVM's triple of the host code."""
    cpu: str
    features: tuple[str, ...]
    """CPU features the code needs, in LLVM's spelling without '+': avx2, avx512vnni, dotprod."""
    options: dict[str, Any]
    """The rest of the row: limits, f16, subgroup size, kernel choices."""


@dataclass(frozen=True, kw_only=True)
class LibraryInfo:
    """The compiled code. `kind` is so, dylib, dll, wasm or a."""

    path: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor that is made at load; a symbolic size is a string, "num_pages" always first."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """A cache group: what layers keep of the tokens they have seen, in one pool of pages or slots.

    `forward` takes the tensors of all groups, in this order.
    """

    kind: str
    """paged, window or state: `mlcc.engine.tables.CacheGroup`."""
    page_size: int
    """Tokens per page; 1 for states."""
    window: int | None
    """Tokens that a query sees, in a window group."""
    pool: int
    """Planned pages or slots; the executor may allocate fewer."""
    layers: tuple[int, ...]
    """Numbers of the model's layers in this group; each has as many tensors, one after another."""
    tensors: tuple[TensorSpec, ...]

    @property
    def group(self) -> CacheGroup:
        """As the engine knows it. Raises ValueError if the fields do not fit each other."""
        return CacheGroup(self.kind, self.page_size, self.window)

    @property
    def bytes_per_page(self) -> int:
        """Of one page or slot, over all layers of the group."""
        return sum(prod(page_shape(t)) * DTYPE_BYTES[t.dtype] for t in self.tensors)


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """A table of the step's buffer, in 32-bit words: `mlcc.engine.tables.Table`."""

    name: str
    columns: tuple[str, ...]
    entries: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds compiled into the library."""

    context: int
    max_batch: int
    """Sequences in one step."""
    max_step_tokens: int
    max_rows: int
    """Rows of logits in one step."""
    max_step_pages: int
    """Entries of all page lists in one step."""
    max_copies: int
    """Pages and slots copied in one step."""

    def layout(self, groups: Sequence[CacheGroup]) -> StepLayout:
        """The tables of a step of a model with these groups."""
        return StepLayout(
            tuple(groups),
            self.max_step_tokens,
            self.max_batch,
            self.max_rows,
            self.max_step_pages,
            self.max_copies,
        )


@dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """One weight as the kernels read it, and the safetensors shard that holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class WeightsInfo:
    """The weights in the order in which the library's `forward` takes them."""

    tensors: tuple[WeightSpec, ...]

    @property
    def shards(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tensor.shard for tensor in self.tensors))


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the folder, other than the manifest. Hashes are sha256 in lower-case hex."""

    path: str
    bytes: int
    sha256: str
    chunks: tuple[str, ...]
    """One per CHUNK_BYTES, the last one shorter."""


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes on the device once loaded with all pools as planned."""

    weights_bytes: int
    cache_bytes: int
    workspace_bytes: int


@dataclass(frozen=True, kw_only=True)
class ToolVersions:
    """What made it. No timestamps and no machine names: the same input gives the same bytes."""

    mlcc: str
    tvm: str
    tvm_ffi: str
    llvm: str | None = None
    python: str | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole of mlcc.json. `ArtifactWriter.finish` fills `files`."""

    abi: str
    model: ModelInfo
    quantization: QuantizationInfo
    target: TargetInfo
    library: LibraryInfo
    functions: tuple[str, ...]
    caches: tuple[CacheInfo, ...]
    limits: Limits
    tables: tuple[TableInfo, ...]
    """Where everything of a step lies: `layout` for other languages."""
    weights: WeightsInfo
    memory: MemoryPlan
    tools: ToolVersions
    files: tuple[FileEntry, ...] = ()
    alternatives: tuple[str, ...] = ()
    """Manifests beside this one, the best first, for devices that lack what this library needs:
    the same model and weights, another library. Each is complete by itself and has none itself."""
    schema_version: int = SCHEMA_VERSION

    def to_bytes(self) -> bytes:
        """Canonical, sealed JSON. Raises ArtifactError if a value is not JSON (NaN, infinity)."""
        plain = {"schema_version": self.schema_version, **to_plain(self)}
        try:
            text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"{MANIFEST_NAME} cannot be written: {error}") from error
        return _seal(text.encode())

    @staticmethod
    def from_bytes(data: bytes) -> Manifest:
        """Parse and check everything that needs no other file. Raises ArtifactError."""
        plain = _unseal(data)
        _check_schema(plain)
        try:
            manifest = from_plain(Manifest, plain)
        except RecordError as error:
            raise ArtifactError(f"{MANIFEST_NAME}: {error}; {_AGAIN}") from error
        _check_consistency(manifest)
        return manifest

    @property
    def layout(self) -> StepLayout:
        """The tables of a step. Raises ValueError if groups or bounds are none."""
        return self.limits.layout([cache.group for cache in self.caches])

    def file(self, path: str) -> FileEntry | None:
        """The entry of a file by its path, or None."""
        return next((entry for entry in self.files if entry.path == path), None)


def abi_hash(tvm: str, tvm_ffi: str, kernel_interface: int = KERNEL_INTERFACE) -> str:
    """Libraries load only where the same three hold. 16 hex digits."""
    text = f"tvm={tvm}\ntvm_ffi={tvm_ffi}\nkernel_interface={kernel_interface}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def page_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A cache tensor without the leading "num_pages", its only symbolic size."""
    return tuple(int(size) for size in spec.shape[1:])


def tables_of(layout: StepLayout) -> tuple[TableInfo, ...]:
    """As the manifest writes them."""
    return tuple(
        TableInfo(name=t.name, columns=t.columns, entries=t.entries, offset=t.offset)
        for t in layout.tables
    )


def check_relative(path: str) -> str:
    """A plain relative POSIX path that cannot leave its folder, or ArtifactError."""
    parts = PurePosixPath(path).parts
    plain = path == "/".join(parts) and ".." not in parts and not path.startswith("/")
    if not path or not plain or any(c in path for c in '\\:\0\n*?"<>|'):
        raise ArtifactError(f"{MANIFEST_NAME} names the unsafe path {path!r}; {_AGAIN}")
    return path


_AGAIN = "compile the model again or copy the folder again"
_SEAL = re.compile(rb',\n "checksum": "([0-9a-f]{64})"\n\}\n\Z')
_ZEROS = b"0" * 64


def _seal(text: bytes) -> bytes:
    # The checksum is over the file's own bytes with zeros in its place: any language can check
    # it without knowing how Python spells a float.
    data = text.removesuffix(b"\n}") + b',\n "checksum": "' + _ZEROS + b'"\n}\n'
    digest = hashlib.sha256(data).hexdigest().encode()
    return data.replace(_ZEROS + b'"\n}\n', digest + b'"\n}\n')


def _unseal(data: bytes) -> dict[str, Any]:
    found = _SEAL.search(data, max(0, len(data) - 128))
    start, end = found.span(1) if found else (0, 0)
    digest = hashlib.sha256(data[:start] + _ZEROS + data[end:]).hexdigest()
    if not found or found.group(1).decode() != digest:
        raise ArtifactError(f"{MANIFEST_NAME} is damaged or was edited by hand; {_AGAIN}")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{MANIFEST_NAME} is not JSON ({error}); {_AGAIN}") from error
    plain.pop("checksum")
    return dict(plain)


def _check_schema(plain: dict[str, Any]) -> None:
    version = plain.get("schema_version")
    if isinstance(version, int) and OLDEST_SCHEMA <= version <= SCHEMA_VERSION:
        return
    tools = plain.get("tools")
    maker = tools.get("mlcc", "?") if isinstance(tools, dict) else "?"
    advice = "compile the model again with `mlcc compile`"
    if isinstance(version, int) and version > SCHEMA_VERSION:
        advice = "type `pip install --upgrade mlcc`"
    raise ArtifactError(
        f"made by mlcc {maker} (schema {version}); "
        f"this mlcc reads schema {OLDEST_SCHEMA} to {SCHEMA_VERSION}: {advice}"
    )


def _check_consistency(manifest: Manifest) -> None:
    for entry in manifest.files:
        check_relative(entry.path)
        if entry.bytes < 0 or len(entry.chunks) != -(-entry.bytes // CHUNK_BYTES):
            raise ArtifactError(f"{MANIFEST_NAME}: wrong chunk count for {entry.path}; {_AGAIN}")
    paths = {entry.path for entry in manifest.files}
    used = [manifest.library.path, *manifest.weights.shards, *manifest.alternatives]
    used += [manifest.model.licence] if manifest.model.licence else []
    for path in used:
        if path not in paths:
            raise ArtifactError(f"{MANIFEST_NAME} uses {path!r} but lists no such file; {_AGAIN}")
    dtypes = {tensor.dtype for cache in manifest.caches for tensor in cache.tensors}
    dtypes |= {tensor.dtype for tensor in manifest.weights.tensors}
    for dtype in sorted(dtypes - set(DTYPE_BYTES)):
        raise ArtifactError(f"{MANIFEST_NAME} uses the unknown dtype {dtype!r}; {_AGAIN}")
    try:
        tables = tables_of(manifest.layout)
    except ValueError as error:
        raise ArtifactError(f"{MANIFEST_NAME}: {error}; {_AGAIN}") from error
    if manifest.tables != tables:
        raise ArtifactError(f"{MANIFEST_NAME}: the tables are not those of its limits; {_AGAIN}")
