"""The cache of compiled models: an edited compiler has another key, a removal is locked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from mlcc.model_cache.cache import Entry, remove, sources_stamp


def test_an_edited_kernel_is_another_compiler(tmp_path: Path) -> None:
    kernel = tmp_path / "kernels" / "matmul.py"
    kernel.parent.mkdir()
    kernel.write_text("x = 1")
    before = sources_stamp([tmp_path])
    (tmp_path / "matmul.pyc").write_text("")
    assert sources_stamp([tmp_path]) == before != ""
    kernel.write_text("x = 12")
    assert sources_stamp([tmp_path]) != before
    assert sources_stamp([]) == ""


def test_an_entry_is_removed_under_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a-1"
    (folder / "model").mkdir(parents=True)
    rmtree, refused = shutil.rmtree, []

    def watched(path: Path, **options: Any) -> None:
        try:
            FileLock(folder / ".lock").acquire(timeout=0)
        except Timeout:
            refused.append(path)
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    assert remove(Entry(folder, {}))
    assert refused == [folder] and not folder.exists()
