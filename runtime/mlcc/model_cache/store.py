"""The cached models by name: the view of the cache (`cache.py`) for `list`, `show`, `rm` and a
server without arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.errors import ArtifactError, CheckpointError
from mlcc.model_cache.cache import Entry, entries

HUB = "hf://"


@dataclass(frozen=True)
class Stored:
    """One cached model that can be loaded."""

    entry: Entry
    manifest: Manifest

    @property
    def model(self) -> Path:
        """The compiled model's folder."""
        return self.entry.model

    @property
    def origin(self) -> str:
        """The model's source: a folder, or hf://org/name."""
        return str(self.entry.source.get("model", "?"))

    @property
    def name(self) -> str:
        """The name for users: org/name of the hub, or the model's own."""
        if self.origin.startswith(HUB):
            return self.origin.removeprefix(HUB)
        return self.manifest.model.name

    @property
    def made(self) -> float:
        """Time of creation, in seconds since 1970."""
        return self.model.stat().st_mtime


def stored() -> Iterator[Stored]:
    """Every complete model that this version of mlcc reads."""
    for entry in entries():
        if entry.complete:
            with suppress(ArtifactError):  # made by an older version
                yield Stored(entry, Artifact.open(entry.model, verify=False, host=False).manifest)


def named(name: str) -> list[Stored]:
    """Cached models with a name: org/name, hf://org/name, a folder, or the entry's own name.

    Raises CheckpointError if there is none.
    """
    found = [each for each in stored() if name in _names(each)]
    if found:
        return found
    known = sorted({each.name for each in stored()})
    there = f"there are {', '.join(known[:8])}" if known else "there are none"
    raise CheckpointError(f"no model is kept as '{name}'; {there} (`mlcc list`)")


def kept(name: str, target: str | None, quant: str | None) -> Path | None:
    """The folder of a model by its name in the list; None for paths and names of the hub, which are
    resolved elsewhere."""
    if name.startswith(HUB) or Path(name).exists():
        return None
    for each in stored():
        manifest = each.manifest
        if (
            name in _names(each)
            and target in (None, manifest.target.name)
            and quant in (None, manifest.quantization.name)
        ):
            return each.model
    return None


def _names(model: Stored) -> set[str]:
    path = model.origin if model.origin.startswith(HUB) else str(Path(model.origin).resolve())
    return {model.name, model.origin, model.manifest.model.name, model.entry.folder.name, path}
