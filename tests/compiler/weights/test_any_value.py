"""Random values in a checkpoint's small files are refused in one line, or harmless.

Types and sizes in every place of config.json, tokenizer.json and generation_config.json, for all
that a compile reads before it starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import MlccError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import check_tokenizer, tokenizer_json
from mlcc_compiler.models.fields import require
from mlcc_compiler.models.registry import build_model, with_defaults
from mlcc_compiler.weights.check import check_layers
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

MUTATIONS = [None, [], {}, -1, 0, 2**63, "", "a" * 5000, "\x1b[2K\n", True, 1.5, [[]], 10**400]
ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
"""A part of config.json that has parts."""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "tiny")
    (folder / "generation_config.json").write_text('{"temperature": 0.7, "eos_token_id": [1]}')
    edited(folder / "config.json", ("rope_scaling",), ROPE)
    return folder


def places(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key, and the first few entries of every list and of long values."""
    rows = list(tree.items() if isinstance(tree, dict) else enumerate(tree))
    for key, value in rows[:15]:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def edited(file: Path, path: tuple[str | int, ...], value: Any) -> None:
    tree = json.loads(file.read_bytes())
    *above, last = path
    part = tree
    for key in above:
        part = part[key]
    part[last] = value
    file.write_text(json.dumps(tree))


def outcomes(folder: Path, name: str, read: Any) -> set[str]:
    """Run `read` on every mutation: it must succeed or raise one of our errors, in one line."""
    file = folder / name
    data, found = file.read_bytes(), set()
    for path in places(json.loads(data)):
        for value in MUTATIONS:
            edited(file, path, value)
            try:
                read()
            except MlccError as error:
                assert error.message.isprintable() and len(error.message) < 4200, (path, value)
                found.add("refused")
            except Exception as error:
                raise AssertionError(f"{name}: {path} = {str(value)[:40]!r}") from error
            else:
                found.add("read")
            file.write_bytes(data)
    return found


def test_config(tiny: Path) -> None:
    def read() -> None:
        checkpoint = Checkpoint.open(tiny)
        layers = require(with_defaults(checkpoint.config), "num_hidden_layers")
        check_layers(layers, len(checkpoint.tensors.shapes))
        build_model(checkpoint.config, 64)

    assert outcomes(tiny, "config.json", read) == {"refused", "read"}


def test_generation_config(tiny: Path) -> None:
    def read() -> None:
        checkpoint = Checkpoint.open(tiny)
        assert all(token >= 0 for token in checkpoint.eos_token_ids)

    # recommendations that are none are left out
    assert outcomes(tiny, "generation_config.json", read) == {"read"}


def test_tokenizer(tiny: Path) -> None:
    def read() -> None:
        check_tokenizer(tiny, tokenizer_json(tiny))

    assert outcomes(tiny, "tokenizer.json", read) == {"refused", "read"}
