"""Reads the matrices of a PEFT folder: adapter_model.safetensors, with tensors named by module.

Headers are checked first; data is read on demand from the same open file, and a file replaced
meanwhile is detected. Pickled weights (.bin) can run code and are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mlcc.artifact.safetensors import SafetensorsError, TensorEntry, read_header
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.lora.peft_config import LoraConfig, read_config
from mlcc.util.fast_dataclass import fast_dataclass

WEIGHTS_NAME = "adapter_model.safetensors"
DTYPES = ("float32", "float16", "bfloat16")
_PREFIX = "base_model.model."
_MATRIX = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.[^.]+)?\.weight")
"""Some writers leave the adapter's name (`.default`) in the tensor name."""


@fast_dataclass(frozen=True)
class LoraPair:
    """The two matrices of one module: y = x W' + scale * (x A') B'."""

    a: TensorEntry
    """[rank, inputs]"""
    b: TensorEntry
    """[outputs, rank]"""
    scale: float

    @property
    def rank(self) -> int:
        return self.a.shape[0]


@fast_dataclass(frozen=True)
class LoraFolder:
    """An adapter with checked headers; its data is read within `opened`."""

    path: Path
    config: LoraConfig
    pairs: Mapping[str, LoraPair]
    """By module, without PEFT's own prefix."""

    @contextmanager
    def opened(self) -> Iterator[LoraData]:
        """Open its file. Raises ArtifactError if it cannot be read, or was replaced meanwhile."""
        path = self.path / WEIGHTS_NAME
        try:
            with path.open("rb") as file:
                began = _identity(os.fstat(file.fileno()))
                again = read_header(path)
                for pair in self.pairs.values():
                    if any(again.get(entry.name) != entry for entry in (pair.a, pair.b)):
                        raise _replaced(path)
                yield LoraData(file)
                if _identity(path.stat()) != began:
                    raise _replaced(path)
        except SafetensorsError as error:
            raise ArtifactError(f"{path}: {error}") from None
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be read ({error.strerror or error})") from None


@fast_dataclass(frozen=True)
class LoraData:
    """Reads the bytes of an adapter's matrices from its open file."""

    _file: BinaryIO

    def read(self, entry: TensorEntry) -> bytes:
        """The bytes of a tensor. Raises ArtifactError if the file is too short."""
        self._file.seek(entry.start)
        data = self._file.read(entry.stop - entry.start)
        if len(data) != entry.stop - entry.start:
            raise _replaced(entry.path)
        return data


def read_folder(folder: Path) -> LoraFolder:
    """Read configuration and tensor headers of a folder. Raises ArtifactError, UnsupportedError."""
    try:
        return _read_folder(folder)
    except OSError as error:  # such as a folder that this user may not enter
        raise ArtifactError(f"{folder}: cannot be read ({error.strerror or error})") from None


def _read_folder(folder: Path) -> LoraFolder:
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: is no folder; give one that PEFT saved an adapter in")
    config = read_config(folder)
    path = folder / WEIGHTS_NAME
    if not path.is_file():
        pickled = sorted(found.name for found in folder.glob("*.bin"))
        if pickled:
            raise UnsupportedError(
                f"{folder}: has {pickled[0]}, which is pickled and could run any program; save it "
                f"again with safe_serialization=True, as {WEIGHTS_NAME}"
            )
        raise ArtifactError(f"{folder}: has no {WEIGHTS_NAME}")
    try:
        entries = read_header(path)
    except SafetensorsError as error:
        raise ArtifactError(f"{folder}: {error}") from None
    return LoraFolder(folder, config, _pairs(path, config, entries))


def _pairs(
    path: Path, config: LoraConfig, entries: Mapping[str, TensorEntry]
) -> dict[str, LoraPair]:
    sides: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in entries.items():
        found = _MATRIX.fullmatch(name.removeprefix(_PREFIX))
        if found is None:
            raise UnsupportedError(f"{path}: has {name[:120]!r}, which is no matrix of a LoRA")
        module = found["module"].replace("language_model.", "")
        if found["side"] in sides.setdefault(module, {}):
            raise ArtifactError(f"{path}: has two lora_{found['side']} of {module}")
        sides[module][found["side"]] = entry
    if not sides:
        raise ArtifactError(f"{path}: has no matrices")
    return {module: _pair(path, config, module, each) for module, each in sides.items()}


def _pair(
    path: Path, config: LoraConfig, module: str, sides: Mapping[str, TensorEntry]
) -> LoraPair:
    for side in "AB":
        if side not in sides:
            raise ArtifactError(f"{path}: has no lora_{side} of {module}")
    a, b = sides["A"], sides["B"]
    rank = config.rank_of(module)
    for entry in (a, b):
        if entry.dtype not in DTYPES:
            known = ", ".join(DTYPES)
            raise UnsupportedError(f"{path}: {entry.name} is {entry.dtype}; {known} are read")
    if len(a.shape) != 2 or len(b.shape) != 2 or not a.shape[0] == b.shape[1] == rank:
        raise ArtifactError(
            f"{path}: {module} has lora_A {list(a.shape)} and lora_B {list(b.shape)}, which are "
            f"not of the rank {rank} that its configuration says"
        )
    return LoraPair(a, b, config.scale_of(module))


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _replaced(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: was replaced while it was read; load it again")
