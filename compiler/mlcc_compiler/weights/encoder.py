"""An encoder's tensors: those of its folder under the names of the bare model, whichever class
saved it, and those of sentence-transformers' Dense modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import TensorFolder, Tensors
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import token_ids
from mlcc_compiler.weights.names import NameMap, checkpoint_names

LABELS = "labels.weight"
Rows = Callable[[str, slice], npt.NDArray[np.float32]]
"""Signature of `safetensors.ReadsRows.read_rows`."""
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


def with_answers(checkpoint: Checkpoint, answers: Sequence[str]) -> Checkpoint:
    """The checkpoint with `labels.weight` [1, hidden]: the output head's row of the second answer
    minus that of the first, so that its product is the difference of their logits. Raises
    CheckpointError for answers that are not single tokens."""
    ids = token_ids(checkpoint.tokenizer)
    found = [ids[text] for text in answers if text in ids]
    shapes = checkpoint.tensors.shapes
    heads = ("lm_head.weight", "model.embed_tokens.weight", "embed_tokens.weight")
    head = next((name for name in heads if name in shapes), None)
    if len(found) != 2 or head is None or max(found) >= shapes[head][0]:
        raise CheckpointError(
            f"{checkpoint.folder}: has no tokens {' and '.join(answers)}, or no output head; this "
            "is no reranker that is read by them"
        )
    joined = replace(checkpoint)
    joined.__dict__["tensors"] = _Answering(checkpoint.tensors, head, (found[0], found[1]))
    return joined


def encoder_names(names: Sequence[str], found: Iterable[str]) -> NameMap:
    """Map an encoder's tensor names onto a checkpoint's, which may add a prefix such as `bert.` or
    omit `model.`."""
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
class _Answering:
    """A language model's tensors plus the difference of its two answers' rows."""

    base: Any
    head: str
    answers: tuple[int, int]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.base, name)  # `read_rows` is there only if the base has it
        return partial(self._rows, found) if name == "read_rows" else found

    def __contains__(self, name: str) -> bool:
        return name == LABELS or name in self.base

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
        return {**self.base.shapes, LABELS: (1, self.base.shapes[self.head][1])}

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""
        self.base.check_dtypes(self.head if name == LABELS else name for name in names)

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor."""
        if name != LABELS:
            found: npt.NDArray[np.float32] = self.base.read(name)
            return found
        no, yes = self.base.read(self.head)[list(self.answers)]
        row: npt.NDArray[np.float32] = (yes - no)[None]
        return row

    def _rows(self, base: Rows, name: str, rows: slice) -> npt.NDArray[np.float32]:
        return self.read(name)[rows] if name == LABELS else base(name, rows)


@dataclass(frozen=True)
class _Joined:
    """Tensors of a checkpoint and of further folders; other attributes are the checkpoint's."""

    base: Any
    parts: Mapping[str, Tensors]
    """Further tensors, by the prefix of their names."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.base, name)  # `read_rows` is there only if the base has it
        return partial(self._rows, found) if name == "read_rows" else found

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
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

    def _rows(self, base: Rows, name: str, rows: slice) -> npt.NDArray[np.float32]:
        part, own = self._place(name)
        return base(name, rows) if part is self.base else part.read(own)[rows]

    def _place(self, name: str) -> tuple[Tensors, str]:
        for prefix, part in self.parts.items():
            if name.startswith(prefix) and name.removeprefix(prefix) in part:
                return part, name.removeprefix(prefix)
        return self.base, name
