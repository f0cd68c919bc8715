"""An EAGLE-3 head as published (config.json and safetensors), beside the checkpoint that it drafts
for: its tensors under `mtp.`, and its config as `eagle` of the checkpoint's.

`d2t` has what to add to each of the head's token ids to get the model's. The model's kernels look
the other way round, from a token to the head's row, so `mtp.draft_ids` is made of it: a row number
for each token of the model, or -1. A head's own `embed_tokens` is a copy of the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.models.fields import require
from mlcc_compiler.quantization.quantized import Quantized

Floats = npt.NDArray[np.float32]

PREFIX, DRAFT_IDS, CONFIG = "mtp.", "mtp.draft_ids", "eagle"
_LEFT_OUT = ("d2t", "t2d", "embed_tokens.weight")


def with_eagle(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """The checkpoint with the head. Raises CheckpointError, and UnsupportedError for a head of
    another kind or for another model."""
    head = Checkpoint.open(folder)
    tensors = head.tensors
    names = {name.removeprefix("model."): name for name in tensors.shapes}
    if not isinstance(tensors, TensorFolder) or not _is_head(names):
        raise UnsupportedError(
            f"--draft-head {folder}: is no EAGLE-3 head, which has the tensors 'fc' and "
            "'midlayer'; for a smaller model as a draft use `--draft` of `mlcc serve`"
        )
    vocab_size = require(checkpoint.config, "vocab_size")
    own = int(head.config.get("draft_vocab_size") or vocab_size)
    sizes = [config.get("hidden_size") for config in (head.config, checkpoint.config)]
    if sizes[0] != sizes[1]:
        raise UnsupportedError(
            f"--draft-head {folder}: was trained for a model of hidden size {sizes[0]}, and "
            f"{checkpoint.name} has {sizes[1]}; take the head of this model"
        )
    ids = _draft_ids(tensors, names, own, vocab_size, folder)
    whole = EagleTensors(checkpoint.tensors, tensors, names, ids)
    config = {**checkpoint.config, CONFIG: {**head.config, "draft_vocab_size": own}}
    found = replace(checkpoint, config=config)
    vars(found)["tensors"] = whole  # a frozen dataclass
    return found


def check_no_head(checkpoint: Checkpoint) -> None:
    """Raises UnsupportedError for a head without its model."""
    if _is_head({name.removeprefix("model.") for name in checkpoint.tensors.shapes}):
        raise UnsupportedError(
            f"{checkpoint.name} is an EAGLE-3 head, which is compiled with the model that it was "
            "trained for; add --for CHECKPOINT with that model"
        )


def _is_head(names: Collection[str]) -> bool:
    return "fc.weight" in names and any(name.startswith("midlayer.") for name in names)


def _draft_ids(
    tensors: TensorFolder, names: Mapping[str, str], own: int, vocab_size: int, folder: Path
) -> Floats:
    """f32[vocab_size]: the head's row of each token, or -1."""
    ids = np.full(vocab_size, -1, np.float32)
    rows = np.arange(own)
    tokens = rows
    if "d2t" in names:
        shard, entry = tensors.entries[names["d2t"]]
        count, dtype = prod(entry.shape), np.dtype(entry.dtype).newbyteorder("<")
        found = np.fromfile(tensors.folder / shard, dtype, count, offset=entry.start)
        tokens = rows + found.astype(np.int64) if count == own else found
    good = len(tokens) == own and bool(((tokens >= 0) & (tokens < vocab_size)).all())
    if not good or len(set(tokens.tolist())) != own:
        raise CheckpointError(
            f"--draft-head {folder}: 'd2t' names tokens that the model does not have, or one "
            "twice; fetch the head for this model again"
        )
    ids[tokens] = rows
    return ids


@dataclass(frozen=True)
class EagleTensors:
    """A `Tensors` of both."""

    model: Any
    head: Any
    names: Mapping[str, str]
    """Names of the head's tensors without and with their prefix."""
    draft_ids: Floats

    @cached_property
    def _own(self) -> dict[str, str]:
        named = self.names.items()
        return {PREFIX + name: source for name, source in named if name not in _LEFT_OUT}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        own = {name: self.head.shapes[source] for name, source in self._own.items()}
        kept = self.model.shapes.items()  # without a layer of the checkpoint's own
        kept = {name: shape for name, shape in kept if not name.startswith(PREFIX)}
        return {**kept, **own, DRAFT_IDS: self.draft_ids.shape}

    @cached_property
    def schemes(self) -> dict[str, str]:
        found = self.head.schemes
        own = {name: found[source] for name, source in self._own.items() if source in found}
        return {**self.model.schemes, **own}

    @cached_property
    def nearest(self) -> dict[str, str]:
        """A quantized model's recipe quantizes the floats of its head, which no answer depends
        on."""
        found = {} if self.model.is_quantized else self.head.nearest
        own = {name: found[source] for name, source in self._own.items() if source in found}
        return {**self.model.nearest, **own}

    @property
    def is_quantized(self) -> bool:
        """Whether the model is quantized."""
        return bool(self.model.is_quantized)

    @property
    def notes(self) -> Iterable[str]:
        return (*self.model.notes, *self.head.notes)

    @property
    def nbytes(self) -> int:
        return int(self.model.nbytes) + int(self.head.nbytes)

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one is of a dtype that `read` refuses."""
        own = {name for name in names if name.startswith(PREFIX)}
        self.model.check_dtypes(set(names) - own)
        self.head.check_dtypes({self._own[name] for name in own - {DRAFT_IDS}})

    def read(self, name: str) -> Floats:
        """A fresh float32 copy. Raises CheckpointError if there is none."""
        if name == DRAFT_IDS:
            return self.draft_ids.copy()
        if name in self._own:
            read: Floats = self.head.read(self._own[name])
            return read
        of_model: Floats = self.model.read(name)
        return of_model

    def quantized(self, name: str) -> Quantized:
        """A quantized tensor of `schemes`. Raises CheckpointError."""
        if name in self._own:
            own: Quantized = self.head.quantized(self._own[name])
            return own
        of_model: Quantized = self.model.quantized(name)
        return of_model
