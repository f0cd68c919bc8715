"""The files of a GGUF model: one, a split set, or one of several in a folder.

llama.cpp splits as NAME-00001-of-0000N.gguf; the first has the metadata, each its own tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mlcc.errors import CheckpointError
from mlcc.util.files import begins_with
from mlcc_compiler.checkpoint.gguf.header import MAGIC, GgufHeader, GgufTensor, Value, read_header

SUFFIX = ".gguf"
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MOST_PARTS = 1024
_QUANTIZATION = re.compile(
    r"(?i)[-._](?P<name>(?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|MXFP4(?:_MOE)?))(?=[-._]|$)"
)

MMPROJ = re.compile(r"(?i)(^|[-._/])mmproj([-._]|$)")
"""A vision tower by its name."""


def all_parts(path: Path) -> tuple[Mapping[str, Value], dict[str, GgufTensor]]:
    """Metadata and tensors of a model whose first file is `path`. Raises CheckpointError."""
    headers = [_header(part) for part in parts_of(path)]
    found: dict[str, GgufTensor] = {}
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in found:
                raise CheckpointError(
                    f"{header.path}: has tensor {tensor.name!r}, as has "
                    f"{found[tensor.name].path.name}; fetch the files again"
                )
            found[tensor.name] = tensor
    _check_split(path, headers, found)
    return headers[0].metadata, found


def parts_of(path: Path) -> list[Path]:
    """All files of a model. Raises CheckpointError if `path` is not the first part, or one is
    missing."""
    part = _PART.fullmatch(path.name)
    if part is None:
        return [path]
    number, count = int(part["number"]), int(part["count"])
    if not 1 <= count <= _MOST_PARTS:
        raise CheckpointError(f"{path}: is one of {count} parts by its name, which cannot be")
    names = [f"{part['stem']}-{i:05}-of-{count:05}{SUFFIX}" for i in range(1, count + 1)]
    if number != 1:
        raise CheckpointError(f"{path}: is part {number} of {count}; give the first, {names[0]}")
    missing = [name for name in names if not path.with_name(name).is_file()]
    if missing:
        raise CheckpointError(
            f"{path}: {len(missing)} of its {count} parts are missing ({missing[0]}); fetch them"
        )
    return [path.with_name(name) for name in names]


def is_gguf(path: Path) -> bool:
    """Whether it is a GGUF file, by its name or its first bytes (Ollama's blobs have no suffix), or
    a folder of them without another checkpoint."""
    if path.is_dir():
        return not (path / "config.json").exists() and bool(models_in(path))
    return path.is_file() and (path.suffix.lower() == SUFFIX or begins_with(path, MAGIC))


def models_in(folder: Path, below: bool = False) -> dict[str, Path]:
    """The models of a folder, and of its subfolders if `below`: quantization name -> first file."""
    found: dict[str, Path] = {}
    for path in sorted((folder.rglob if below else folder.glob)("*" + SUFFIX)):
        part = _PART.fullmatch(path.name)
        if MMPROJ.search(path.name) or (part and int(part["number"]) != 1):
            continue
        name = quantization_of(path.name)
        found[name if name not in found else path.stem] = path
    return found


def quantization_of(name: str) -> str:
    """ "Q4_K_M" of model-Q4_K_M-00001-of-00002.gguf, or the whole stem."""
    part = _PART.fullmatch(name)
    stem = part["stem"] if part else name.removesuffix(SUFFIX)
    last = [found["name"] for found in _QUANTIZATION.finditer(stem)]
    return last[-1].upper() if last else stem


def stem_of(name: str) -> str:
    """The model's name in that of a file: without its quantization, "mmproj" and parts."""
    part = _PART.fullmatch(name)
    stem = part["stem"] if part else name.removesuffix(SUFFIX)
    return MMPROJ.sub("-", _QUANTIZATION.sub("", stem)).strip("-._").lower()


def select_model(path: Path, quantization: str | None = None) -> Path:
    """The first file of the selected model. Raises CheckpointError, which lists all, if a folder
    has several and none is named."""
    if not path.is_dir():
        return path
    models = models_in(path, below=quantization is not None)
    if quantization is not None:
        for name, file in models.items():
            if quantization.upper() in (name.upper(), file.name.upper(), file.stem.upper()):
                return file
    elif len(models) == 1:
        return next(iter(models.values()))
    listed = ", ".join(file.name for file in models.values())
    missing = f"has no {quantization}" if quantization else "holds several models"
    raise CheckpointError(f"{path}: {missing}; give one of its files: {listed}")


def _header(path: Path) -> GgufHeader:
    if not path.is_file():
        raise CheckpointError(f"{path}: is no regular file; give a GGUF file")
    return read_header(path)


def _check_split(path: Path, headers: list[GgufHeader], found: Mapping[str, GgufTensor]) -> None:
    """Check that the parts belong to one model, and are complete."""
    declared = headers[0].metadata
    count = _metadata_count(path, declared, "split.count", 0)
    if count not in (0, len(headers)):
        raise CheckpointError(
            f"{path}: is one of {count} parts, and {len(headers)} are given by its name; keep the "
            "names that llama.cpp gives, NAME-00001-of-0000N.gguf"
        )
    for number, header in enumerate(headers):
        if (
            len(headers) > 1
            and _metadata_count(path, header.metadata, "split.no", number) != number
        ):
            raise CheckpointError(f"{header.path}: is part {number + 1} by its name alone")
    total = _metadata_count(path, declared, "split.tensors.count", len(found))
    if total != len(found):
        raise CheckpointError(
            f"{path}: its parts have {len(found)} tensors of {total}; fetch them again"
        )


def _metadata_count(path: Path, metadata: Mapping[str, Value], key: str, default: int) -> int:
    """A count from the metadata. Raises CheckpointError."""
    found = metadata.get(key, default)
    if not isinstance(found, int):
        raise CheckpointError(f"{path}: {key} is no whole number; fetch it again")
    return found
