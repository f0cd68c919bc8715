"""Writes the artifact folder: everything into a temporary folder, then one rename.

The format is `mlcc.artifact.manifest`; swapping folders is `output.py`. If the `with` block ends
early (an error, Ctrl-C, SIGTERM), nothing is left behind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace as changed
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt

from mlcc.artifact.checks.consistency import check_relative
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.output_errors import check_space, write_error
from mlcc.artifact.schema import MANIFEST_NAME, FileEntry, TensorSpec, WeightsInfo
from mlcc.artifact.text_files import CHAT_TEMPLATE, CHAT_TEMPLATES, GENERATION_CONFIG, TOKENIZER
from mlcc.errors import CheckpointError
from mlcc_compiler.artifact.output import (
    check_replaceable,
    locked,
    replace,
    sync_folder,
    temporary,
)
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.interrupts import Unwinding, deferred, unwinding
from mlcc_compiler.weights.shards import (
    HashedFile,
    Progress,
    hash_file,
    plan_shards,
    write_shards,
)

_NONE: Mapping[str, Manifest] = {}


class ArtifactWriter:
    """`with ArtifactWriter(out, estimate) as w: w.add_weights(...); ...; w.finish(manifest)`."""

    def __init__(self, out: str | Path, estimate_bytes: int = 0) -> None:
        """`estimate_bytes`: expected size, for the check of free disk space before any work."""
        self.out = Path(os.path.realpath(out))
        self.estimate_bytes = estimate_bytes
        self._exits = ExitStack()
        self._signals = ExitStack()
        self._unwinding = Unwinding()
        self._entries: dict[str, FileEntry | None] = {}

    def __enter__(self) -> ArtifactWriter:
        """Lock, check, make the temporary folder. Raises MlccError or CapacityError."""
        self._unwinding = self._signals.enter_context(unwinding())
        try:
            with deferred():
                self._begin()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(error)

    def path(self, name: str) -> Path:
        """Path for a file that another tool writes (the linker); `finish` hashes it."""
        self._entries[check_relative(name)] = None
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_bytes(self, name: str, data: bytes) -> None:
        """Write a small file."""
        self.path(name)
        self._entries[name] = self._write(name, data)

    def add_folder(self, name: str) -> None:
        """Take over an artifact that was written into a folder below this one."""
        inner = self.folder / name
        manifest = Manifest.from_bytes((inner / MANIFEST_NAME).read_bytes())
        for entry in manifest.files:
            self._entries[f"{name}/{entry.path}"] = changed(entry, path=f"{name}/{entry.path}")
        self._entries[f"{name}/{MANIFEST_NAME}"] = None

    def add_weights(
        self,
        specs: Sequence[TensorSpec],
        arrays: Iterable[npt.NDArray[Any]],
        progress: Progress | None = None,
        prefix: str = "weights",
    ) -> WeightsInfo:
        """Stream weights into shards. `specs` and `arrays` are in the order of `forward`.

        `arrays` may be a generator: one array is held at a time. bfloat16 is ml_dtypes' or uint16.
        """
        weights = plan_shards(specs, prefix=prefix)
        for entry in write_shards(self.folder, weights, arrays, progress):
            self._entries[entry.path] = entry
        return WeightsInfo(tensors=weights)

    def add_checkpoint(self, checkpoint: Checkpoint) -> str | None:
        """Add tokenizer, chat templates, generation defaults and licence. Returns the licence's
        path."""
        self.add_bytes(TOKENIZER, checkpoint.tokenizer)
        for name, text in sorted(checkpoint.chat_templates.items()):
            self.add_bytes(template_path(name), text.encode())
        if checkpoint.generation_config:
            text = json.dumps(checkpoint.generation_config, indent=1, sort_keys=True)
            self.add_bytes(GENERATION_CONFIG, text.encode() + b"\n")
        if checkpoint.licence is None:
            return None
        name, data = checkpoint.licence
        self.add_bytes(name, data)
        return name

    def finish(self, manifest: Manifest, alternatives: Mapping[str, Manifest] = _NONE) -> Path:
        """Complete the manifest's `files`, write it and rename the folder into place.

        alternatives: file name -> manifest of another library for the same weights, best first.
        """
        entries = {name: entry or self._hash(name) for name, entry in self._entries.items()}
        libraries = {each.library.path for each in (manifest, *alternatives.values())}
        for name, other in alternatives.items():
            foreign = libraries - {other.library.path}
            own = [entry for path, entry in entries.items() if path not in foreign]
            entries[name] = self._write(name, _complete(other, own))
            libraries.add(name)
        manifest = changed(manifest, alternatives=tuple(alternatives))
        self._write(MANIFEST_NAME, _complete(manifest, entries.values()))
        sync_folder(self.folder)
        self._unwinding.check()
        with deferred():
            replace(self.folder, self.out)
        return self.out

    def _hash(self, name: str) -> FileEntry:
        return hash_file(self.folder / name, name)

    def _write(self, name: str, data: bytes) -> FileEntry:
        with HashedFile(self.folder / name, name) as file:
            file.write(data)
        return file.entry()

    def _begin(self) -> None:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self._exits.enter_context(locked(self.out))
        check_replaceable(self.out)
        check_space(self.out, self.estimate_bytes, "--output")
        self.folder = temporary(self.out)
        self._exits.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def _end(self, error: BaseException | None) -> None:
        with self._signals, deferred(), self._exits:
            pass
        self._unwinding.check(error)
        if isinstance(error, OSError):
            raise write_error(error, self.out, "--output") from error


def _complete(manifest: Manifest, entries: Iterable[FileEntry]) -> bytes:
    """The manifest's bytes, with the list of files. Raises ArtifactError if it is inconsistent."""
    files = tuple(sorted(entries, key=lambda entry: entry.path))
    data = changed(manifest, files=files).to_bytes()
    Manifest.from_bytes(data)
    return data


def template_path(name: str) -> str:
    """Path of a chat template. Raises CheckpointError for a name that is no file name."""
    if name == "default":
        return CHAT_TEMPLATE
    if not re.fullmatch(r"[\w.-]+", name):
        raise CheckpointError(f"chat template name {name!r} is no file name; rename the template")
    return f"{CHAT_TEMPLATES}/{name}.jinja"
