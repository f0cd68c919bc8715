"""Hostile checkpoints: links, devices, panics, numbers without bounds.

Each is refused by one typed line, before anything is allocated or copied.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.openai.requests import recommended
from mlcc.artifact.safetensors import SafetensorsError, read_header
from mlcc.errors import CheckpointError, MlccError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.driver.checks import check_ready
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target
from tests.compiler.weights.hf_folder import hf_folder, raw_safetensors, sharded
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


def plan(folder: Path) -> None:
    """All that a compile reads before it begins to work."""
    checkpoint = Checkpoint.open(folder)
    made = make_plan(checkpoint, get_target("cpu"), Options())
    check_ready(checkpoint, made.config.vocab_size, made.sources.values())


def refused(folder: Path, gist: str) -> None:
    with pytest.raises(CheckpointError, match=gist) as caught:
        plan(folder)
    assert caught.value.message.isprintable() and len(caught.value.message) < 4200


def edit(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))
    return path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


@pytest.mark.parametrize(
    "name",
    ["LICENSE", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"],
)
def test_a_link_that_leaves_the_folder(tiny: Path, name: str) -> None:
    outside = tiny.parent / "secret"
    (tiny / name).replace(outside) if (tiny / name).exists() else outside.write_text("{}")
    (tiny / name).symlink_to(outside)
    refused(tiny, f"{name}: is a link that leaves the folder; copy the real file into it")


@pytest.mark.parametrize("where", ["chat_template.jinja", "additional_chat_templates/x.jinja"])
def test_a_template_without_end_is_not_read(tiny: Path, where: str) -> None:
    (tiny / "additional_chat_templates").mkdir()
    (tiny / where).symlink_to("/dev/zero")
    refused(tiny, "is a link that leaves the folder")
    (tiny / where).unlink()
    os.mkfifo(tiny / where)
    refused(tiny, "is no regular file")


@pytest.mark.parametrize("name", ["config.json", "LICENSE", "tokenizer.json", "model.safetensors"])
def test_a_loop_of_links_is_no_file(tiny: Path, name: str) -> None:
    (tiny / name).unlink(missing_ok=True)
    (tiny / name).symlink_to(name)
    refused(tiny, f"{name}: is no regular file")


def test_a_loop_of_links_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refused(tmp_path / "a", "no such folder")
    assert Checkpoint(tmp_path / "a", {}, {}, {}, {}, {}).name == "a"


def test_links_within_the_folder_and_into_the_hubs_blobs_are_read(tiny: Path) -> None:
    hub = tiny.parent / "models--org--tiny"
    (hub / "snapshots").mkdir(parents=True)
    (hub / "blobs").mkdir()
    snapshot = tiny.rename(hub / "snapshots" / "abc")
    for path in sorted(snapshot.iterdir()):
        path.rename(hub / "blobs" / f"{path.name}-hash")
        path.symlink_to(f"../../blobs/{path.name}-hash")
    (snapshot / "terms").write_text("free")
    (snapshot / "LICENSE").symlink_to("terms")
    plan(snapshot)
    assert Checkpoint.open(snapshot).licence == ("LICENSE", b"free")


def test_a_licence_is_bounded(tiny: Path) -> None:
    with (tiny / "LICENSE").open("wb") as file:
        file.truncate(1 << 30)
    refused(tiny, "LICENSE: cannot be read .it is larger than 4 MiB")


PANICS = {
    "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    },
}


@pytest.mark.parametrize("part", PANICS)
def test_a_tokenizer_that_panics(tiny: Path, part: str, capfd: pytest.CaptureFixture[str]) -> None:
    edit(tiny / "tokenizer.json", **{part: PANICS[part]})
    refused(tiny, "tokenizer.json: cannot be loaded")
    assert "panicked" not in capfd.readouterr().err


def test_a_tokenizer_that_does_not_load(tiny: Path) -> None:
    edit(tiny / "tokenizer.json", pre_tokenizer={"type": "none of these"})
    refused(tiny, "tokenizer.json: cannot be loaded")


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"model": {"vocab": [[]]}},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {}, "added_tokens": [{"content": "</s>", "id": "2"}]},
    ],
)
def test_ids_that_are_none(tmp_path: Path, tokenizer: Any) -> None:
    eos = {"eos_token": "</s>"}
    folder = hf_folder(tmp_path, tokenizer__json=tokenizer, tokenizer_config__json=eos)
    with pytest.raises(CheckpointError, match=r"is no tokenizer\.json"):
        Checkpoint.open(folder).eos_token_ids  # noqa: B018


@pytest.mark.parametrize("layers", [10**9, 2**63, 10**400])
def test_more_layers_than_tensors(tiny: Path, layers: int) -> None:
    edit(tiny / "config.json", num_hidden_layers=layers)
    refused(tiny, "'num_hidden_layers'")


def test_a_shard_of_5000_characters(tmp_path: Path) -> None:
    folder = sharded(tmp_path, {}, {"x": "a" * 5000})
    with pytest.raises(CheckpointError, match=r"names 'a{40}'\.\.\., which is too long"):
        Checkpoint.open(folder).tensors  # noqa: B018


def test_a_temperature_of_401_digits_is_no_recommendation() -> None:
    for value in (10**400, -(10**400), float("nan"), float("inf")):
        assert recommended({"temperature": value}) == {}


def test_names_forge_no_line(tmp_path: Path) -> None:
    forged = "x\r\n\x1b[2Kcompiled in 0.1 s\u2028\u202e"
    header = {forged: {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}
    raw_safetensors(hf_folder(tmp_path) / "model.safetensors", header, bytes(4))
    with pytest.raises(MlccError, match="compiled in") as caught:
        Checkpoint.open(tmp_path).tensors  # noqa: B018
    assert caught.value.message.isprintable() and r"\x1b[2K" in caught.value.message
    error = MlccError(forged)
    assert str(error) == error.message == r"x\r\n\x1b[2Kcompiled in 0.1 s\u2028\u202e"
    assert MlccError("é 漢 😀").message == "é 漢 😀"
    long = MlccError("a" * 10**6 + "; fetch it again").message
    assert len(long) < 4200 and long.endswith("; fetch it again")


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
@pytest.mark.parametrize("value", [None, [], {}, [[]], "F32" * 2000, 2**64, [2**64] * 3, True])
def test_header_entries_of_any_type(tmp_path: Path, field: str, value: Any) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | {field: value}
    with pytest.raises(SafetensorsError, match="'a'"):
        read_header(raw_safetensors(tmp_path / "x", {"a": entry}, bytes(8)))


def test_a_shape_of_a_million_dimensions_is_not_multiplied(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2**62] * 10**5, "data_offsets": [0, 8]}
    with pytest.raises(SafetensorsError, match="32 dimensions"):
        read_header(raw_safetensors(tmp_path / "x", {"a": entry}, bytes(8)))


def test_a_name_twice_is_found_in_one_pass(tmp_path: Path) -> None:
    """40,000 names took 16.7 s: each was counted among all others."""
    names = [f'"{i}":0' for i in range(2000)] + ['"1999":0']
    path = raw_safetensors(tmp_path / "x", b"{" + ",".join(names).encode() + b"}")
    counted = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call" and getattr(argument, "__qualname__", "") == "list.count":
            counted.append(argument)

    sys.setprofile(watch)
    try:
        with pytest.raises(SafetensorsError, match="names '1999' twice"):
            read_header(path)
    finally:
        sys.setprofile(None)
    assert not counted
