"""`Artifact`: opens a compiled model's folder, checks it and locates its weights.

Does not load the library or import tvm; the executors do. Every refusal is an ArtifactError of one
line. The format is described in docs/internals/artifact.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from mlcc.artifact.checks.hash_cache import check_hashes_once
from mlcc.artifact.checks.host_check import select_manifest
from mlcc.artifact.checks.integrity import (
    check_files,
    check_hashes,
    read_alternatives,
    resolve_inside,
)
from mlcc.artifact.manifest import MAX_MANIFEST_BYTES, Manifest
from mlcc.artifact.safetensors import SafetensorsError, TensorEntry, read_header
from mlcc.artifact.schema import MANIFEST_NAME, FileEntry, WeightSpec
from mlcc.artifact.text_files import TOKENIZER, chat_templates, generation_config
from mlcc.errors import ArtifactError
from mlcc.util.fast_dataclass import fast_dataclass
from mlcc.util.files import FileError, read_regular

MAX_TEXT_BYTES = 16 << 20
CHECKPOINT_FILES = ("config.json", "model.safetensors", "model.safetensors.index.json")
"""Files that make a folder a checkpoint; an artifact has none of them."""


@fast_dataclass(frozen=True)
class Artifact:
    """An opened folder. `notes` lists what could not be checked on this machine, and why.

    If opened for this machine, `manifest` is that of the best library that runs here. Otherwise it
    is mlcc.json, and `alternatives` are the other manifests of the folder.
    """

    folder: Path
    manifest: Manifest
    notes: tuple[str, ...] = ()
    alternatives: tuple[Manifest, ...] = ()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        verify: bool = True,
        host: bool = True,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Artifact:
        """Check and open a folder. Raises ArtifactError in one line.

        verify: hash every chunk of every file (about a second per gigabyte and core), and the
        library as a whole too, unless that was done since they last changed. host: check whether
        this machine can run the library (ABI, system, CPU features), and select the best library
        of the folder that it can run. progress: gets the bytes that were hashed, and all, if they
        are hashed.
        """
        folder = Path(path)
        try:
            manifest = Manifest.from_bytes(_read_manifest(folder))
            check_files(folder, manifest)
            others = read_alternatives(folder, manifest)
            notes: tuple[str, ...] = ()
            if host:
                manifest, notes = select_manifest(chain((manifest,), others))
            if verify:
                whole = (manifest.library.path,)
                files = manifest.files
                check = partial(check_hashes, folder, files, whole=whole, progress=progress)
                check_hashes_once(folder, files, check)
            alternatives = () if host else tuple(others)
        except ArtifactError as error:
            raise ArtifactError(f"{folder}: {error.message}") from error
        except OSError as error:
            raise ArtifactError(f"{folder}: cannot be read ({error.strerror or error})") from error
        return cls(folder, manifest, notes, alternatives)

    def verify(self, files: Sequence[FileEntry] | None = None) -> None:
        """Hash these files, or all, by chunk and as a whole. Raises ArtifactError."""
        files = self.manifest.files if files is None else files
        try:
            check_hashes(self.folder, files, whole={entry.path for entry in files})
        except (ArtifactError, OSError) as error:
            raise ArtifactError(f"{self.folder}: {error}") from error

    @property
    def library_path(self) -> Path:
        return self.folder / self.manifest.library.path

    @property
    def tokenizer_path(self) -> Path:
        """tokenizer.json. Raises ArtifactError if the folder has none."""
        if self.manifest.file(TOKENIZER) is None:
            raise ArtifactError(f"{self.folder}: has no {TOKENIZER}; compile the model again")
        return self.folder / TOKENIZER

    @property
    def licence_path(self) -> Path | None:
        licence = self.manifest.model.licence
        return self.folder / licence if licence else None

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        """The checkpoint's generation defaults (temperature, top_p, ...); {} if it has none."""
        try:
            return generation_config(self.manifest, self.text)
        except ArtifactError as error:
            raise ArtifactError(f"{self.folder}: {error.message}") from error

    @cached_property
    def chat_templates(self) -> dict[str, str]:
        """Jinja text by name: "default", perhaps "tool_use" and others. {} for a base model."""
        return chat_templates(self.manifest, self.text)

    @property
    def chat_template(self) -> str | None:
        return self.chat_templates.get("default")

    def weights(self, rank: int = 0) -> dict[str, TensorEntry]:
        """The location of every weight of a rank, in the argument order of `forward`. Raises
        ArtifactError."""
        headers, ranks = {}, self.manifest.ranks
        for shard in self.manifest.weights.shards:
            own = ranks.shard(rank, shard) if ranks else shard
            try:
                headers[shard] = read_header(resolve_inside(self.folder, own))
            except (SafetensorsError, OSError) as error:
                raise ArtifactError(f"{self.folder}: {error}; compile the model again") from error
        return {spec.name: self._entry(spec, headers[spec.shard]) for spec in self._specs}

    def text(self, path: str) -> str:
        """A file of the folder as text. Raises ArtifactError."""
        try:
            data = read_regular(self.folder / path, MAX_TEXT_BYTES)
        except (OSError, FileError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArtifactError(
                f"{self.folder}: {path} cannot be read ({reason}); compile the model again"
            ) from error
        return data.decode("utf-8", "replace")

    @property
    def _specs(self) -> tuple[WeightSpec, ...]:
        return self.manifest.weights.tensors

    def _entry(self, spec: WeightSpec, header: dict[str, TensorEntry]) -> TensorEntry:
        entry = header.get(spec.name)
        if entry is None or (entry.dtype, entry.shape) != (spec.dtype, spec.shape):
            there = f"{entry.dtype} {list(entry.shape)}" if entry else "nothing"
            raise ArtifactError(
                f"{self.folder}: {spec.shard} holds {there} as {spec.name}, the manifest says "
                f"{spec.dtype} {list(spec.shape)}; compile the model again"
            )
        return entry


def _read_manifest(folder: Path) -> bytes:
    path = folder / MANIFEST_NAME
    if not folder.exists():
        raise ArtifactError("no such folder; make one with `mlcc compile MODEL`")
    if not path.is_file():
        advice = (
            "compile it with `mlcc compile`"
            if (folder / "config.json").is_file()
            else ("make one with `mlcc compile MODEL`")
        )
        raise ArtifactError(f"not a compiled model (it has no {MANIFEST_NAME}); {advice}")
    for name in CHECKPOINT_FILES:
        if os.path.lexists(folder / name):
            raise ArtifactError(
                f"holds both a compiled model ({MANIFEST_NAME}) and a checkpoint ({name}); remove "
                f"{MANIFEST_NAME} to have the checkpoint compiled here, or move the compiled model "
                "to a folder of its own if you trust its machine code"
            )
    resolve_inside(folder, MANIFEST_NAME)
    try:
        return read_regular(path, MAX_MANIFEST_BYTES)
    except FileError as error:
        raise ArtifactError(f"{MANIFEST_NAME} cannot be read: {error}") from error
