"""Compiled kernels and host code are cached by their inputs; a library's bytes do not change."""

from __future__ import annotations

import ast
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.util.file_cache import KERNELS as cache
from mlcc.util.file_cache import FileCache
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir._tvm import ir, tirx
from mlcc_compiler.kernels import tir_pipeline
from mlcc_compiler.object_files import PASSES, key_of
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Checkpoint.open(write_checkpoint(tmp_path / "model"))


def library(checkpoint: Checkpoint, out: Path, target: str = "cpu") -> bytes:
    options = Options(quant="f32", context=32, max_batch=1)
    folder = compile_model(checkpoint, get_target(target), out, options, Progress())
    return (folder / "model.so").read_bytes()


@pytest.mark.parametrize("target", ["cpu", "vulkan"])
def test_a_library_has_the_same_bytes_from_the_cache(
    target: str, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = library(checkpoint, tmp_path / "cold", target)
    entries = [path for path in cache.folder().iterdir() if path.suffix != ".key"]
    assert len(entries) > 8 if target == "cpu" else len(entries) == 1

    def compiled_again(key: str, code: bytes) -> None:
        raise AssertionError("an object was compiled again")

    with monkeypatch.context() as patch:
        patch.setattr(cache, "store", compiled_again)
        assert library(checkpoint, tmp_path / "warm", target) == first
    if target != "cpu":  # whose one object is all of a compile
        return
    damaged = bytearray(entries[0].read_bytes())
    damaged[-1] ^= 1
    entries[0].write_bytes(damaged)
    assert library(checkpoint, tmp_path / "damaged", target) == first
    assert entries[0].read_bytes() != damaged


def test_a_cache_that_cannot_be_written_is_ignored(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    without = library(checkpoint, tmp_path / "without")
    monkeypatch.undo()  # to the user's, which may have all of its objects
    assert library(checkpoint, tmp_path / "with") == without


def test_a_disk_that_is_full_keeps_no_part_of_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses the rest of the file, as it does on a full disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        cache.store("a", bytes(10_000))
        cache.store("b", bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in cache.folder().iterdir()] == ["b"]
    assert cache.load("a") is None and cache.load("b") == bytes(100)


def test_the_least_recently_used_objects_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = FileCache("kernels", 300)
    for i, key in enumerate("abc"):
        small.store(key, bytes(100))
        os.utime(small.folder() / key, (i, i))
    assert small.load("a") == bytes(100)
    small.trim()
    assert sorted(path.name for path in small.folder().iterdir()) == ["a", "c"]
    small.clear()
    assert small.size() == 0 and small.load("a") is None


def test_a_process_looks_for_old_objects_once_and_then_after_a_sixteenth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small, looks = FileCache("kernels", 1600), list[Any]()
    look = os.scandir

    def counted(folder: Any) -> Any:
        looks.append(folder)
        return look(folder)

    monkeypatch.setattr(os, "scandir", counted)
    for i in range(21):
        small.store(str(i), bytes(50))  # a sixteenth is two of them
        small.trim()
    assert len(looks) == 11 and small.size() <= 1600


def scaled(factor: float, **buffer: Any) -> ir.IRModule:
    """A kernel that writes `factor`, in float32, into a buffer of one number."""
    out = tirx.decl_buffer((1,), "float32", "out", **buffer)
    store = tirx.BufferStore(out, tirx.FloatImm("float32", factor), [0])
    kernel = tirx.PrimFunc([out], store)
    return ir.IRModule({"scaled": kernel.with_attr("global_symbol", "scaled")})


def test_a_key_is_of_all_that_a_kernel_is_made_of() -> None:
    """The last digit of a number and what a buffer is declared to be."""
    next_float = float(np.nextafter(np.float32(0.1), np.float32(1)))
    different = [
        scaled(float(np.float32(0.1))),
        scaled(next_float),
        scaled(next_float, data_alignment=16),
        scaled(next_float, offset_factor=4),
        scaled(next_float, scope="shared"),
    ]
    keys = {key_of(module, "llvm") for module in different}
    assert len(keys) == len(different)
    assert key_of(scaled(next_float), "llvm") in keys  # other objects, equal kernels


def test_a_key_is_of_all_modules_with_passes() -> None:
    """Those of ours that the pipelines' module imports, and itself."""
    source = Path(str(tir_pipeline.__file__)).read_text(encoding="utf-8")
    imported = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mlcc_compiler.kernels")
    }
    assert {module.__name__ for module in PASSES} == {*imported, tir_pipeline.__name__}
