"""`mlcc.json`: everything a runtime must know about a compiled model before it loads it.

Standard library only, so that the compiler, the desktop, Pyodide and a phone read the same file.
It is not the artifact: files and devices are `artifact.py`'s. The policy for changes is in
docs/artifact.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from mlcc.errors import ArtifactError
from mlcc.manifest_rules import AGAIN, check_consistency
from mlcc.manifest_rules import CHUNK_BYTES as CHUNK_BYTES
from mlcc.manifest_rules import DTYPE_BYTES as DTYPE_BYTES
from mlcc.manifest_rules import MANIFEST_NAME as MANIFEST_NAME
from mlcc.manifest_rules import check_relative as check_relative
from mlcc.records import RecordError, from_plain, to_plain

SCHEMA_VERSION, OLDEST_SCHEMA = 2, 1
"""Of this file, and the oldest that is read: 2 added `alternatives`. Others are refused."""
KERNEL_INTERFACE = 1
"""Of the library's functions: bump when an argument of `forward`, `sample`, ... changes."""
MAX_MANIFEST_BYTES = 64 << 20


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
class KvInfo:
    """The paged KV: `num_pages` is the planned size, `tensors` what the executor allocates."""

    page_size: int
    num_pages: int
    tensors: tuple[TensorSpec, ...]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds compiled into the library."""

    context: int
    max_batch: int
    max_step_tokens: int
    max_step_pages: int
    """Entries of `page_indices` in one step."""
    window: int | None = None


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
    """Bytes on the device once loaded with `kv.num_pages` pages."""

    weights_bytes: int
    kv_bytes: int
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
    kv: KvInfo
    limits: Limits
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
            raise ArtifactError(f"{MANIFEST_NAME}: {error}; {AGAIN}") from error
        check_consistency(manifest)
        return manifest

    @property
    def interface(self) -> str:
        """What the library's code was compiled for, as a hash: a library states its own."""
        return interface_hash(self.kv, self.limits, self.model.vocab_size, self.weights.tensors)

    def file(self, path: str) -> FileEntry | None:
        """The entry of a file by its path, or None."""
        return next((entry for entry in self.files if entry.path == path), None)


def abi_hash(tvm: str, tvm_ffi: str, kernel_interface: int = KERNEL_INTERFACE) -> str:
    """Libraries load only where the same three hold. 16 hex digits."""
    text = f"tvm={tvm}\ntvm_ffi={tvm_ffi}\nkernel_interface={kernel_interface}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def interface_hash(
    kv: KvInfo, limits: Limits, vocab_size: int, weights: Iterable[TensorSpec | WeightSpec]
) -> str:
    """Of every number that is a constant in a library's code: pages, bounds, vocabulary, weights.

    16 hex digits. Not of how many pages there are: that is chosen when it is loaded.
    """
    pages = [(tensor.dtype, tensor.shape[1:]) for tensor in kv.tensors]
    arrays = [(tensor.name, tensor.dtype, tensor.shape) for tensor in weights]
    plain = to_plain([kv.page_size, pages, limits, vocab_size, arrays])
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


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
        raise ArtifactError(f"{MANIFEST_NAME} is damaged or was edited by hand; {AGAIN}")
    try:
        plain = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{MANIFEST_NAME} is not JSON ({error}); {AGAIN}") from error
    plain.pop("checksum")
    return dict(plain)


def _no_number(text: str) -> None:
    raise ValueError(f"it holds {text}")


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
        f"made by mlcc {maker} (schema {version!s:.20}); "
        f"this mlcc reads schema {OLDEST_SCHEMA} to {SCHEMA_VERSION}: {advice}"
    )
