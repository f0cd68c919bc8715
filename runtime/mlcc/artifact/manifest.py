"""`Manifest`: reads and writes `mlcc.json`, and the hashes by which libraries and runtimes match.

Standard library only, so that the compiler, the desktop, Pyodide and a phone read the same file.
The folder itself is `folder.py`. The policy for format changes is in docs/internals/artifact.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from mlcc.artifact.checks.consistency import check_consistency
from mlcc.artifact.records import RecordError, from_plain, to_plain
from mlcc.artifact.schema import (
    AGAIN,
    MANIFEST_NAME,
    OLDEST_SCHEMA,
    SCHEMA_VERSION,
    AdaptersInfo,
    CacheInfo,
    EmbeddingsInfo,
    Limits,
    ManifestRecord,
    TensorSpec,
    WeightSpec,
)
from mlcc.errors import ArtifactError
from mlcc.util.fast_dataclass import fast_dataclass

KERNEL_INTERFACE = 5
"""Version of the library's functions: bump it when an argument of `forward`, `sample`, ... or a
column of a step's tables changes. 2: a step is one buffer (`mlcc.engine.batch.tables`). 3: rows
have more filters.

It is one number for all targets and does not cover what libraries of one target need from their
loader: only Linux refuses its libraries from before `raise_parts.c`."""
MAX_MANIFEST_BYTES = 64 << 20


@fast_dataclass(frozen=True, kw_only=True)
class Manifest(ManifestRecord):
    """The whole of mlcc.json. `ArtifactWriter.finish` fills `files`."""

    def to_bytes(self) -> bytes:
        """Canonical, sealed JSON. Raises ArtifactError if a value is not JSON (NaN, infinity)."""
        plain = {"schema_version": self.schema_version, **to_plain(self)}
        if self.adapters is None:
            del plain["adapters"]  # absent in files without adapters, as before
        if self.encoder is None:
            del plain["encoder"]  # absent in files without an encoder, as before
        if self.ranks is None:
            del plain["ranks"]
        for name in ("embeddings", "token_columns", "vision", "audio", "audio_input"):
            if not plain[name]:
                del plain[name]
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
    def command(self) -> str:
        """The command of mlcc that uses such a model: chat, or of an encoder embed or serve."""
        if self.encoder is None:
            return "chat"
        return "embed" if self.encoder.task == "embed" else "serve"

    @property
    def interface(self) -> str:
        """Hash of the sizes that the library was compiled for; a library reports its own."""
        vocab, weights = self.model.vocab_size, self.weights.tensors
        return interface_hash(
            self.caches,
            self.limits,
            vocab,
            weights,
            self.adapters,
            self.embeddings,
            self.token_columns,
        )


def abi_hash(tvm: str, tvm_ffi: str, kernel_interface: int = KERNEL_INTERFACE) -> str:
    """Hash of the ABI; libraries load only where it is the same. 16 hex digits."""
    text = f"tvm={tvm}\ntvm_ffi={tvm_ffi}\nkernel_interface={kernel_interface}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def interface_hash(
    caches: Iterable[CacheInfo],
    limits: Limits,
    vocab_size: int,
    weights: Iterable[TensorSpec | WeightSpec],
    adapters: AdaptersInfo | None = None,
    embeddings: EmbeddingsInfo | None = None,
    token_columns: tuple[str, ...] = (),
) -> str:
    """Hash of all constants in a library's code: caches, bounds, vocabulary, weights, adapter
    slots, the width of embeddings and further columns of tokens.

    16 hex digits. Excludes the number of pages, which is chosen when the library is loaded.
    """
    groups = [
        (c.kind, c.page_size, c.window, c.layers, [(t.dtype, t.shape[1:]) for t in c.tensors])
        for c in caches
    ]
    arrays = [(tensor.name, tensor.dtype, tensor.shape) for tensor in weights]
    optional: list[object] = [adapters] if adapters else []
    if embeddings is not None:
        optional.append({"embeddings": embeddings.width})
    if token_columns:
        optional.append({"token_columns": token_columns})
    plain = to_plain([groups, limits, vocab_size, arrays, *optional])
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
