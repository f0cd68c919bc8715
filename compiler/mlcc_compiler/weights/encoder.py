"""An encoder's tensors: those of its folder under the names of the bare model, whichever class
saved it, and those of sentence-transformers' Dense modules beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.weights.names import NameMap, checkpoint_names
from mlcc_compiler.weights.reader import TensorFolder, Tensors

_PREFIXES = ("bert.", "roberta.", "model.")


def with_dense(checkpoint: Checkpoint, folders: Sequence[str]) -> Checkpoint:
    """The checkpoint with the tensors of its Dense modules, as `dense.0.linear.weight`. Raises
    CheckpointError for a folder without weights."""
    if not folders:
        return checkpoint
    joined = replace(checkpoint)
    parts = {
        f"dense.{i}.": TensorFolder.open(checkpoint.folder / name) for i, name in enumerate(folders)
    }
    # a cached property: what everybody reads tensors through
    joined.__dict__["tensors"] = _Joined(checkpoint.tensors, parts)
    return joined


def encoder_names(names: Sequence[str], found: Iterable[str]) -> NameMap:
    """Map the names of an encoder onto a checkpoint's: `bert.` and the like may stand before them,
    and `model.` may be missing."""
    there = list(found)
    known = set(there)
    maps = [
        {name: name for name in names},
        *({n: n if n in known else prefix + n for n in names} for prefix in _PREFIXES),
        {n: n if n in known else n.removeprefix("model.") for n in names},
    ]
    best = max(maps, key=lambda each: sum(source in known for source in each.values()))
    if sum(source in known for source in best.values()) < len(names) // 2:
        return checkpoint_names(names, there)
    return NameMap(best, there)


@dataclass(frozen=True)
class _Joined:
    """Tensors of a checkpoint and of more folders; whatever else one asks is the checkpoint's."""

    base: Any
    parts: Mapping[str, Tensors]
    """By what is put before their names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all."""
        more = {
            prefix + name: shape
            for prefix, part in self.parts.items()
            for name, shape in part.shapes.items()
        }
        return {**self.base.shapes, **more}

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""
        for name in names:
            part, own = self._place(name)
            part.check_dtypes([own])

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor."""
        part, own = self._place(name)
        return part.read(own)

    def _place(self, name: str) -> tuple[Tensors, str]:
        for prefix, part in self.parts.items():
            if name.startswith(prefix) and name.removeprefix(prefix) in part:
                return part, name.removeprefix(prefix)
        return self.base, name
