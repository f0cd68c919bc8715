"""`--merge-lora`: adds a LoRA adapter to a checkpoint's tensors before quantization.

The compiled model has no adapter at run time. Adapters that are loaded while serving are
`passes/adapters.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc.lora.peft import LoraFolder, LoraPair, read_folder
from mlcc.lora.targets import ALL_LINEAR
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.quantization.schemes import anew

Floats = npt.NDArray[np.float32]
_MOST_NAMED = 3


def with_lora(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """The checkpoint with a PEFT adapter merged into its weights as they are read.

    Raises CheckpointError for an adapter that does not fit, and the errors of reading its folder.
    """
    adapter = read_folder(folder)
    pairs = _placed(adapter, checkpoint.tensors.shapes)
    merged = replace(checkpoint)
    # a cached property: what everybody reads tensors through
    merged.__dict__["tensors"] = _Merged(checkpoint.tensors, adapter, pairs)
    return merged


@dataclass(frozen=True)
class _Merged:
    """Tensors of a checkpoint, some of them changed; other attributes are the checkpoint's."""

    base: Any
    adapter: LoraFolder
    pairs: Mapping[str, LoraPair]
    """Pairs of LoRA matrices, by the names of tensors."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.base, name)  # `read_rows` is there only if the base has it
        return partial(self._rows, found) if name == "read_rows" else found

    def __contains__(self, name: str) -> bool:
        return name in self.base

    @property
    def schemes(self) -> dict[str, str]:
        """Schemes of the unchanged tensors: a changed one is no longer in its stored scheme."""
        return {n: s for n, s in self.base.schemes.items() if n not in self.pairs}

    @property
    def nearest(self) -> dict[str, str]:
        """A changed tensor is requantized to its old scheme by recipes that keep."""
        stored = {n: anew(s) for n, s in self.base.schemes.items() if n in self.pairs}
        return {**self.base.nearest, **stored}

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor, with its adapter's product added."""
        return self._added(name, self.base.read(name), slice(None))

    def _rows(self, base: Callable[[str, slice], Floats], name: str, rows: slice) -> Floats:
        return self._added(name, base(name, rows), rows)

    def _added(self, name: str, tensor: Floats, rows: slice) -> Floats:
        """These rows of a tensor with the adapter's product added."""
        if (pair := self.pairs.get(name)) is None:
            return tensor
        with self.adapter.opened() as data:
            a, b = (floats(data.read(e), e.dtype).reshape(e.shape) for e in (pair.a, pair.b))
        return tensor + np.float32(pair.scale) * (b[rows] @ a)


def floats(data: bytes, dtype: str) -> Floats:
    """Stored numbers as float32."""
    if dtype != "bfloat16":
        return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).astype(np.float32)
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def _placed(adapter: LoraFolder, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, LoraPair]:
    names = {name.replace("language_model.", "").removesuffix(".weight"): name for name in shapes}
    trained = f" (it was trained on '{adapter.config.base}')" if adapter.config.base else ""
    if unknown := [module for module in adapter.pairs if module not in names]:
        raise CheckpointError(
            f"{adapter.path}: adapts {_named(unknown)}, which this checkpoint does not have"
            f"{trained}"
        )
    for module, pair in adapter.pairs.items():
        given, wanted = (pair.b.shape[0], pair.a.shape[1]), shapes[names[module]]
        if given != wanted:
            raise CheckpointError(
                f"{adapter.path}: is for another base{trained}: its {module} is {list(given)}, "
                f"this checkpoint's is {list(wanted)}"
            )
    targets = adapter.config.targets
    if targets.modules != ALL_LINEAR and targets.are_named:
        matrices = [m for m, name in names.items() if len(shapes[name]) == 2 and targets.match(m)]
        if missing := [module for module in matrices if module not in adapter.pairs]:
            raise CheckpointError(
                f"{adapter.path}: has no matrices of {_named(missing)}, which its target_modules "
                "name"
            )
    return {names[module]: pair for module, pair in adapter.pairs.items()}


def _named(modules: list[str]) -> str:
    more = f" and {len(modules) - _MOST_NAMED} more" if len(modules) > _MOST_NAMED else ""
    return ", ".join(modules[:_MOST_NAMED]) + more
