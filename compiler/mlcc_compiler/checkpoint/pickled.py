"""PyTorch's pickled weights (`pytorch_model.bin`), converted to safetensors in a child process.

The child reads with `torch.load(weights_only=True)`, which builds tensors and runs no code of the
file, and writes them to a temporary folder, a file at a time. A separate process, as a crafted file
can exhaust memory and time. Needs torch, which nothing else does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mlcc.artifact.safetensors import read_header
from mlcc.errors import CheckpointError, MlccError
from mlcc_compiler.checkpoint.files import find, read_object
from mlcc_compiler.checkpoint.safetensors import TensorFolder

SINGLE, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_LIMIT_S = 1800.0
_READS = """
import sys, torch
from safetensors.torch import save_file
found = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
found = found.get("state_dict", found)
bad = [k for k, v in found.items() if not isinstance(k, str) or not isinstance(v, torch.Tensor)]
if bad:
    sys.exit(f"{str(bad[0])[:60]!r} is no tensor")
save_file({k: v.detach().contiguous().clone() for k, v in found.items()}, sys.argv[2])
"""


def files_of(folder: Path) -> list[str]:
    """The pickled files of a folder; [] if none has one of transformers' names."""
    if find(folder, SINGLE) is not None:
        return [SINGLE]
    index = read_object(folder, INDEX) or {}
    shards = index.get("weight_map")
    if not isinstance(shards, dict):
        return []
    names = {name for name in shards.values() if isinstance(name, str)}
    if not all(re.fullmatch(r"[\w.-]{1,200}\.bin", name) for name in names):
        raise CheckpointError(f"{folder / INDEX}: names files that are none; fetch it again")
    return sorted(names)


@dataclass(frozen=True)
class PickledFolder(TensorFolder):
    """The tensors of pickled files, from a converted copy that is deleted with the object."""

    copy: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def of(cls, folder: Path) -> PickledFolder:
        """Raises MlccError."""
        copy = converted(folder)
        tensors = TensorFolder.open(Path(copy.name))
        return cls(tensors.folder, tensors.entries, copy)


def converted(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A temporary safetensors folder of the same tensors, deleted with the object. Raises
    MlccError."""
    if find_spec("torch") is None:
        raise MlccError(
            f"{folder}: holds pickled weights, which need torch to be read; type `pip install "
            "torch`, or save the model once as safetensors"
        )
    out = tempfile.TemporaryDirectory(prefix="mlcc-pickled-")
    names = files_of(folder)
    for i, name in enumerate(names, 1):
        if (path := find(folder, name)) is None:
            raise CheckpointError(f"{folder}: missing {name}, named by {INDEX}; fetch it again")
        _convert(path, Path(out.name) / f"{i}.safetensors")
    _write_index(Path(out.name), len(names))
    return out


def _write_index(folder: Path, count: int) -> None:
    """Write the index of several files. Raises CheckpointError."""
    rows: dict[str, str] = {}
    for name in (f"{i}.safetensors" for i in range(1, count + 1)):
        rows |= dict.fromkeys(read_header(folder / name), name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": rows}))


def _convert(path: Path, out: Path) -> None:
    command = [sys.executable, "-I", "-c", _READS, str(path), str(out)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(f"{path}: took more than {_LIMIT_S:.0f} s to read") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = next((line for line in reversed(lines) if line.strip()), "no reason given")
        raise CheckpointError(
            f"{path}: cannot be read as pickled weights ({reason[:200]}); use safetensors"
        )
