"""The tensors of a Hugging Face folder: one safetensors file, or shards with an index.

Lazy: opening reads headers only, with a bounded reader that reports errors; `read` takes one tensor
with the format's own package and widens it to float32. Never opens pickle. Knows no architecture:
expected names and shapes are checked in `weights/check.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from mlcc.artifact.safetensors import SafetensorsError, TensorEntry, read_header
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.files import find, read_object
from mlcc_compiler.quantization.floats import from_storage
from mlcc_compiler.quantization.quantized import Quantized

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
READABLE = ("float32", "float16", "bfloat16")
_LONGEST_NAME = 255
_FETCH = "fetch the checkpoint again"


class Tensors(Protocol):
    """Interface of every reader of a checkpoint's tensors."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor, by its name in the checkpoint; [N, K] also if packed."""

    @property
    def schemes(self) -> Mapping[str, str]:
        """The tensors available by `quantized`, with their schemes."""

    @property
    def nearest(self) -> Mapping[str, str]:
        """For other tensors that recipes may keep: the scheme that changes `read`'s values least.
        For floats their own format, for formats without a scheme a fallback."""

    @property
    def is_quantized(self) -> bool:
        """Whether it has matrices that are already quantized, in a scheme or not."""

    @property
    def notes(self) -> Iterable[str]:
        """What a keeping recipe cannot keep, a line for each kind."""

    @property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""

    def __contains__(self, name: str) -> bool: ...

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor, dequantized if necessary."""

    def quantized(self, name: str) -> Quantized:
        """A tensor of `schemes`, its values unchanged. Raises CheckpointError if it has none."""


class RowReadable(Tensors, Protocol):
    """Tensors that can be read by rows."""

    def read_rows(self, name: str, rows: slice) -> npt.NDArray[np.float32]:
        """`read(name)[rows]`."""


def supports_rows(tensors: Tensors) -> TypeGuard[RowReadable]:
    """Whether these can be read by rows. isinstance is not enough: its result for delegating
    objects depends on Python's version."""
    return hasattr(tensors, "read_rows")


@dataclass(frozen=True)
class TensorFolder:
    """Tensors by name over all shards. `entries` maps a name to its shard and position."""

    folder: Path
    entries: Mapping[str, tuple[str, TensorEntry]]

    @classmethod
    def open(cls, folder: Path) -> TensorFolder:
        """Read the headers of every shard. Raises CheckpointError for anything unsound."""
        index = {} if find(folder, SINGLE) else _read_index(folder)
        shards = sorted(set(index.values())) or [SINGLE]
        missing = [shard for shard in shards if find(folder, shard) is None]
        if missing:
            raise CheckpointError(f"{folder}: missing {_some(missing)} named by {INDEX}; {_FETCH}")
        entries: dict[str, tuple[str, TensorEntry]] = {}
        for shard in shards:
            for name, entry in _header(folder, shard).items():
                if name in entries:
                    both = f"{entries[name][0]} and {shard}"
                    raise CheckpointError(f"{folder}: tensor {name!r} is in {both}; {_FETCH}")
                entries[name] = (shard, entry)
        _check_index(folder, index, entries)
        return cls(folder, entries)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: entry.shape for name, (_, entry) in self.entries.items()}

    @cached_property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""
        return sum(entry.stop - entry.start for _, entry in self.entries.values())

    @property
    def schemes(self) -> dict[str, str]:
        """Empty: floats only."""
        return {}

    @property
    def nearest(self) -> dict[str, str]:
        """Tensors of 16 and 32 bits keep their format under a keeping recipe."""
        dtypes = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
        found = {name: dtypes.get(entry.dtype) for name, (_, entry) in self.entries.items()}
        return {name: scheme for name, scheme in found.items() if scheme}

    @property
    def is_quantized(self) -> bool:
        """False: floats only."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """Empty: floats can be kept."""
        return ()

    def quantized(self, name: str) -> Quantized:
        """Raises CheckpointError: no tensor is quantized."""
        raise CheckpointError(f"{self.folder}: tensor {name!r} is not quantized; read its floats")

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""
        for name in names:
            shard, entry = self.entries[name]
            if entry.dtype in READABLE:
                continue
            found = f"tensor {name!r} in {shard} is {entry.dtype}"
            if entry.dtype.startswith("float8"):
                raise UnsupportedError(
                    f"{found} (fp8), and there is no scale for it that config.json's "
                    f"quantization_config describes (such as '{name}_scale_inv'); fetch the whole "
                    "checkpoint again, or use the one in bfloat16"
                )
            raise UnsupportedError(
                f"{found}; mlcc reads {', '.join(READABLE)}, and integers and fp8 where "
                "config.json's quantization_config describes them: use the checkpoint before it "
                "was quantized"
            )

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor. UnsupportedError for other dtypes."""
        return self._read(name, None)

    def read_item(self, name: str, item: int) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of `tensor[item]`; only that part is read."""
        return self._read(name, item)

    def read_rows(self, name: str, rows: slice) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of some rows, which alone are read: by a plain read, as the format's
        package makes two copies and requests new memory from the system each time."""
        if name not in self.entries:
            return self._read(name, rows)  # which says so
        self.check_dtypes([name])
        shard, entry = self.entries[name]
        first, last, _ = rows.indices(entry.shape[0])
        row = prod(entry.shape[1:])
        dtype = np.dtype("uint16" if entry.dtype == "bfloat16" else entry.dtype).newbyteorder("<")
        path, start = self.folder / shard, entry.start + first * row * dtype.itemsize
        count = max(last - first, 0) * row
        try:
            array = np.fromfile(path, dtype, count, offset=start)
        except OSError as error:
            raise CheckpointError(f"{self.folder}: {shard}: {error}; {_FETCH}") from error
        if len(array) != count:
            raise CheckpointError(f"{self.folder}: {shard} became shorter; {_FETCH}")
        return from_storage(array, entry.dtype).reshape(-1, *entry.shape[1:])

    def _read(self, name: str, part: int | slice | None) -> npt.NDArray[np.float32]:
        if name not in self.entries:
            raise CheckpointError(f"{self.folder}: has no tensor {name!r}; {_FETCH}")
        self.check_dtypes([name])
        shard, _ = self.entries[name]
        try:
            with safe_open(self.folder / shard, framework="numpy") as file:
                array: npt.NDArray[Any] = (
                    file.get_tensor(name) if part is None else file.get_slice(name)[part]
                )
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{self.folder}: {shard}: {error}; {_FETCH}") from error
        return array.astype(np.float32, copy=False)


_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")


def has_safetensors(folder: Path) -> bool:
    """Whether `TensorFolder.open` finds anything. Raises CheckpointError."""
    return find(folder, SINGLE) is not None or find(folder, INDEX) is not None


def _header(folder: Path, shard: str) -> dict[str, TensorEntry]:
    try:
        return read_header(folder / shard)
    except SafetensorsError as error:
        raise CheckpointError(f"{folder}: {error}; {_FETCH}") from error
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{folder}: {shard} cannot be read ({reason})") from error


def _read_index(folder: Path) -> dict[str, str]:
    path, tree = folder / INDEX, read_object(folder, INDEX)
    if tree is None:
        raise CheckpointError(_no_weights(folder))
    index = tree.get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(s, str) for s in index.values()):
        raise CheckpointError(f"{path}: is no index with a weight_map; {_FETCH}")
    for shard in set(index.values()):
        if Path(shard).name != shard or any(c in shard for c in "\\:\0"):
            raise CheckpointError(f"{path}: names {shard!r}, which is outside the folder; {_FETCH}")
        if len(shard.encode(errors="replace")) > _LONGEST_NAME:
            raise CheckpointError(f"{path}: names {shard[:40]!r}..., which is too long; {_FETCH}")
    if not index:
        raise CheckpointError(f"{path}: its weight_map is empty; {_FETCH}")
    return index


def _check_index(
    folder: Path, index: dict[str, str], entries: dict[str, tuple[str, TensorEntry]]
) -> None:
    absent = [n for n, shard in index.items() if n not in entries or entries[n][0] != shard]
    if absent:
        raise CheckpointError(
            f"{folder}: {INDEX} promises tensors that their shards lack: {_some(absent)}; {_FETCH}"
        )


def _no_weights(folder: Path) -> str:
    names = {path.name for path in folder.iterdir()}
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        return (
            f"{folder}: holds only pickled weights, which mlcc never loads; save it once with "
            "transformers (`AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)`) "
            "to get model.safetensors"
        )
    if any(name.endswith(".onnx") for name in names) or "onnx" in names:
        return (
            f"{folder}: holds its weights as ONNX only, and has no model.onnx or onnx/model.onnx, "
            "which is the float export that mlcc reads; fetch it, or the repository's "
            "model.safetensors"
        )
    if "adapter_model.safetensors" in names:
        return f"{folder}: is a LoRA adapter; merge it into its base model and compile that"
    found = sorted(name for name in names if name.endswith(".safetensors"))
    if any(name.startswith("consolidated") for name in found):
        return (
            f"{folder}: has {_some(found)} in Mistral's own layout and no {SINGLE}; fetch the "
            "model*.safetensors files of the same repository"
        )
    if len(found) == 1 and not _SHARD.search(found[0]):
        return (
            f"{folder}: has its weights in {found[0]!r} and no {SINGLE}; give it that name: "
            f"`mv {shlex.quote(str(folder / found[0]))} {shlex.quote(str(folder / SINGLE))}`"
        )
    if found:
        return (
            f"{folder}: has shards but no {INDEX}, which lists what is in them "
            f"({_some(found, 4)}); fetch that file too"
        )
    return f"{folder}: has no {SINGLE} and no {INDEX}; mlcc reads safetensors only"


def _some(names: list[str], limit: int = 20) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(sorted(names)[:limit]) + more
