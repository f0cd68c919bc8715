"""A compile on a full disk ends with one line that says what to do, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.errors import CapacityError
from mlcc.util.file_cache import KERNELS
from mlcc_compiler.pipeline import TEMPORARY_BYTES, build
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

MOST_BYTES = 100 << 10
"""More than an object file has, less than the library and than the weights as float32."""


@pytest.mark.parametrize(
    ("quant", "words"),
    [
        ("f32", "out: its disk, or the limit of `ulimit -f`, allows no file so large; raise the"),
        ("q8", "making model.so failed: the disk is full, or `ulimit -f` allows no file so large"),
    ],
    ids=["weights", "library"],
)
def test_a_file_that_the_system_does_not_let_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quant: str, words: str
) -> None:
    """A real refusal of the system, as on a full disk, of the compile and its linker."""
    checkpoint, place = write_checkpoint(tmp_path / "tiny"), tmp_path / "place"
    (place / "temporary").mkdir(parents=True)
    command = ["compile", str(checkpoint), "--quant", quant, "--cpu", "host"]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (MOST_BYTES, resource.RLIM_INFINITY))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(place / "temporary"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("MLCC_PROGRESS", "none")
    done = subprocess.run(
        [sys.executable, "-B", "-m", "mlcc", *command, "-o", str(place / "out")],
        capture_output=True, text=True, check=False, preexec_fn=limit,
    )  # fmt: skip
    *_, error = done.stderr.splitlines()
    assert done.returncode == 2 and error.startswith("error: ") and words in error, done.stderr
    assert "Traceback" not in done.stderr
    assert [*place.rglob("*")] == [place / "temporary"]
    kept = [path.name for path in KERNELS.folder().iterdir()] if quant == "q8" else []
    assert all(KERNELS.load(name) for name in kept) and bool(kept) == (quant == "q8")


def test_a_compile_on_first_use_says_how_the_cache_gets_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no entry that a later use would take."""
    checkpoint, cache = write_checkpoint(tmp_path / "tiny"), tmp_path / "cache"
    command = ["run", str(checkpoint), "hi", "--quant", "f32", "--target", "reference"]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (MOST_BYTES, resource.RLIM_INFINITY))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-B", "-m", "mlcc", *command],
        capture_output=True, text=True, check=False, preexec_fn=limit,
    )  # fmt: skip
    *_, error = done.stderr.splitlines()
    assert done.returncode == 2 and "allows no file so large" in error, done.stderr
    assert error.endswith("type `mlcc cache clean`, or set XDG_CACHE_HOME to another disk")
    assert not [path for path in (cache / "mlcc" / "compiled").rglob("*") if path.is_file()]


def test_a_full_disk_of_temporary_files_is_noticed_before_llvm_writes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: list[Any] = [None, None]
    monkeypatch.setattr(
        shutil, "disk_usage", lambda place: SimpleNamespace(free=TEMPORARY_BYTES - 1)
    )
    with pytest.raises(CapacityError, match="free some space or choose another TMPDIR"):
        build(*nothing, tmp_path / "model.so")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=TEMPORARY_BYTES))
    with pytest.raises(AttributeError):  # it goes on, to a target that is none
        build(*nothing, tmp_path / "model.so")
