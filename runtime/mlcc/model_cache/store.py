"""The cached models by name: the view of the cache (`cache.py`) for `list`, `show`, `rm` and a
server without arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.errors import ArtifactError, CheckpointError
from mlcc.model_cache.cache import Entry, entries

HUB = "hf://"
_LATEST = "latest"


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
    """Cached models with a name, as `stored_name` reads it: org/name, hf://org/name, a folder, or
    the entry's own name.

    Raises CheckpointError if there is none.
    """
    models = list(stored())
    if found := _matching(name, models):
        return found
    known = sorted({each.name for each in models})
    there = f"there are {', '.join(known[:8])}" if known else "there are none"
    close = names_like(name)
    hint = f"; did you mean {close[0]}?" if close else f"; {there}"
    raise CheckpointError(f"no model is kept as '{name}'{hint} (`mlcc list`)")


def stored_name(text: str) -> str | None:
    """The name of a stored model that is given in any case or by a unique beginning; of NAME:QUANT
    and NAME:latest, the newest entry's own name. None if no model has it.
    """
    models = list(stored())
    if any(text in _names(each) for each in models):
        return text
    found = _matching(text, models)
    if not found:
        return None
    newest = max(found, key=lambda each: each.made)
    return newest.entry.folder.name if ":" in text else newest.name


def names_like(text: str) -> list[str]:
    """Names of stored models that may be meant by one that none has, the likeliest first."""
    names = {name.lower(): name for each in stored() for name in (each.name, _last(each.name))}
    beginning = sorted(name for folded, name in names.items() if folded.startswith(text.lower()))
    close = get_close_matches(text.lower(), names, n=3, cutoff=0.7)
    return list(dict.fromkeys([*beginning, *(names[folded] for folded in close)]))


def _matching(text: str, models: list[Stored]) -> list[Stored]:
    """Models with a name, by the first rule that finds some; [] if a beginning is not unique."""
    if exact := [each for each in models if text in _names(each)]:
        return exact
    text = text.lower()
    if folded := [each for each in models if text in _folded(each)]:
        return folded
    name, colon, tag = text.rpartition(":")
    if colon:
        of_name = [each for each in models if name in _folded(each)]
        if tag == _LATEST:
            return sorted(of_name, key=lambda each: each.made)[-1:]
        return [each for each in of_name if each.manifest.quantization.name.lower() == tag]
    begin = [each for each in models if any(n.startswith(text) for n in _folded(each))]
    return begin if len({each.name for each in begin}) == 1 else []


def _folded(model: Stored) -> set[str]:
    """A model's names in lower case, also without the organization."""
    return {name.lower() for name in (*_names(model), _last(model.name))}


def _last(name: str) -> str:
    return name.rpartition("/")[2]


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
