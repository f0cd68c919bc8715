"""Hostile compiled models: edited and sealed again, linked, with files in two roles."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.artifact.folder import CHECKPOINT_FILES, Artifact
from mlcc.artifact.manifest import _seal as seal
from mlcc.artifact.schema import FileEntry
from mlcc.errors import ArtifactError
from mlcc.model.text import open_text
from mlcc.model_cache.cache import CompileOptions, compiled
from tests.runtime.artifact.small_artifact import make, rewrite
from tests.runtime.artifact.test_inspect import shown


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sound") / "tiny")


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def refused(folder: Path, gist: str, **options: bool) -> None:
    with pytest.raises(ArtifactError, match=gist) as caught:
        Artifact.open(folder, **options)
    assert caught.value.message.isprintable() and caught.value.message.startswith(str(folder))


def edit(folder: Path, path: tuple[str | int, ...], value: Any) -> Path:
    """Set one value and seal the manifest again."""
    tree = json.loads((folder / "mlcc.json").read_bytes())
    tree.pop("checksum")
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    (folder / "mlcc.json").write_bytes(seal(json.dumps(tree, indent=1).encode()))
    return folder


@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_a_checkpoint_that_brings_a_library(copy: Path, name: str) -> None:
    (copy / name).write_text("{}")
    refused(copy, rf"holds both a compiled model .mlcc\.json. and a checkpoint .{name}.; remove")
    assert compiled(str(copy), CompileOptions(), lambda text: None) == copy  # refused when opened
    with pytest.raises(ArtifactError, match="holds both"):
        open_text(copy)


@pytest.mark.parametrize("name", ["mlcc.json", "model.so", "tokenizer.json"])
def test_a_loop_of_links_is_no_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    (copy / name).symlink_to(name)
    refused(copy, "not a compiled model|is missing")


def test_a_loop_of_links_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "no such folder")
    assert Artifact.open(make(tmp_path / "x")).folder == tmp_path / "x"


NUMBERS: list[tuple[tuple[str | int, ...], Any]] = [
    (("model", "vocab_size"), 0),
    (("model", "vocab_size"), 2**63),
    (("model", "eos_token_ids"), [16]),
    (("model", "eos_token_ids"), [-1]),
    (("caches", 0, "page_size"), 0),
    (("caches", 0, "page_size"), -16),
    (("caches", 0, "page_size"), 1),
    (("caches", 0, "page_size"), 2**40),
    (("caches", 0, "pool"), 0),
    (("caches", 0, "pool"), 7),
    (("caches", 0, "pool"), 2**40),
    (("caches", 0, "pool"), 10**400),
    (("caches", 0, "tensors"), []),
    (("caches", 0, "tensors", 0, "shape"), []),
    (("caches", 0, "tensors", 0, "shape"), ["num_pages", 2, 1, 16, 0]),
    (("caches", 0, "tensors", 0, "shape"), ["num_pages", 2, 1, 16, -64]),
    (("caches", 0, "tensors", 0, "shape"), ["num_pages", 2, 1, "x", 64]),
    (("caches", 0, "tensors", 0, "shape"), ["num_pages", 2, 2**20, 16, 2**20]),
    (("caches", 0, "tensors", 0, "shape"), [8, 2, 1, 16, 64]),
    (("limits", "context"), 0),
    (("limits", "context"), 2**20),
    (("limits", "max_batch"), 0),
    (("limits", "max_batch"), 2**20),
    (("limits", "max_step_tokens"), -1),
    (("limits", "max_step_tokens"), 3),
    (("limits", "max_step_pages"), 1),
    (("caches",), []),
    (("caches", 0, "kind"), "heap"),
    (("caches", 0, "kind"), "window"),
    (("caches", 0, "window"), 16),
    (("caches", 0, "window"), -(2**63)),
    (("caches", 0, "layers"), []),
    (("caches", 0, "layers"), [-1]),
    (("caches", 0, "layers"), [0, 1]),
    (("limits", "max_rows"), 0),
    (("limits", "max_copies"), 2**60),
    (("tables", 0, "offset"), 1),
    (("tables", 1, "columns"), ["length"]),
    (("tables", 5, "entries"), 2**40),
    (("tables",), []),
    (("memory", "weights_bytes"), 0),
    (("memory", "cache_bytes"), 2**70),
    (("memory", "workspace_bytes"), -1),
    (("weights", "tensors", 0, "shape"), [2**62, 2**62]),
    (("weights", "tensors", 0, "shape"), [-2, -3]),
    (("weights", "tensors", 0, "shape"), [10**6] * 1000),
    (("weights", "tensors", 0, "name"), "b"),
    (("files", 0, "bytes"), 2**63),
    (("files", 0, "chunks"), ["x"]),
    (("files", 0, "sha256"), "0" * 64),
    (("files", 0, "sha256"), ""),
    (("files", 0, "path"), "a\x1b[2K"),
]


@pytest.mark.parametrize(("path", "value"), NUMBERS, ids=lambda value: str(value)[:40])
def test_numbers_that_do_not_fit(copy: Path, path: tuple[str | int, ...], value: Any) -> None:
    refused(edit(copy, path, value), r"mlcc\.json")


def test_a_path_twice(copy: Path) -> None:
    refused(rewrite(copy, lambda m: replace(m, files=(*m.files, m.files[0]))), "'LICENSE' twice")


def test_numbers_that_json_does_not_have(copy: Path) -> None:
    refused(edit(copy, ("model", "config"), {"x": float("nan")}), "is not JSON .it holds NaN")


def test_the_hash_of_a_file_of_several_chunks(tmp_path: Path) -> None:
    """Chunks cover every byte; the hash that `inspect` shows, and the library's, must be true."""

    def lie(path: str) -> Any:
        def change(entry: FileEntry) -> FileEntry:
            return replace(entry, sha256="0" * 64) if entry.path == path else entry

        return lambda m: replace(m, files=tuple(map(change, m.files)))

    shard = "weights-00001-of-00001.safetensors"
    folder = rewrite(make(tmp_path / "x", {"w": np.zeros(9 << 20, np.uint8)}), lie(shard))
    Artifact.open(folder)
    with pytest.raises(ArtifactError, match=r"is not of the sha256 that is listed"):
        shown(str(folder), "--verify")
    rewrite(folder, lambda m: replace(m, library=replace(m.library, path=shard)))
    refused(folder, "is not of the sha256 that is listed")


def test_what_the_text_side_reads_is_hashed_first(copy: Path) -> None:
    text = (copy / "chat_template.jinja").read_text()
    (copy / "chat_template.jinja").write_text(text[::-1])
    with pytest.raises(ArtifactError, match=r"chat_template\.jinja is damaged"):
        open_text(copy)


def test_names_drive_no_terminal(copy: Path) -> None:
    table = shown(str(edit(copy, ("model", "name"), "x\n\x1b[2Kmodel honest\u202e")))
    assert r"x\n\x1b[2Kmodel honest\u202e (llama)" in table
    assert all(line.isprintable() for line in table.splitlines())


MUTATIONS = [
    None,
    [],
    {},
    -1,
    0,
    2**63,
    "",
    "a" * 5000,
    "\x1b[2K\n",
    True,
    1.5,
    [[]],
    [{}],
    10**400,
]


def test_any_value_anywhere_is_refused_or_harmless(copy: Path) -> None:
    """Types and sizes against every place of the manifest: one line, never another exception."""
    data = (copy / "mlcc.json").read_bytes()
    outcomes = set()
    for path in _places(json.loads(data)):
        for value in MUTATIONS:
            edit(copy, path, value)
            try:
                artifact = Artifact.open(copy)
                artifact.weights(), artifact.generation_config, artifact.chat_templates
            except ArtifactError as error:
                assert error.message.isprintable() and len(error.message) < 4200
                outcomes.add("refused")
            else:
                outcomes.add("opened")
            (copy / "mlcc.json").write_bytes(data)
    assert outcomes == {"refused", "opened"}


def _places(tree: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    rows = tree.items() if isinstance(tree, dict) else enumerate(tree[:1])
    found = []
    for key, value in rows:
        if key != "checksum":
            found.append((*path, key))
            found += _places(value, (*path, key)) if isinstance(value, (dict, list)) else []
    return found
