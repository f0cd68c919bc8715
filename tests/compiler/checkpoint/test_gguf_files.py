"""GGUF files as they are published: whole, split, several in a folder; compiled, and answering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.device.device import DeviceHandle
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.artifact.describe import quantization_info
from mlcc_compiler.checkpoint.gguf.files import quantization_of, select_model
from mlcc_compiler.checkpoint.open import open_checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.checkpoint.helpers.gguf_of import write_gguf
from tests.compiler.checkpoint.helpers.gguf_tokenizers import metadata_of
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.compiler.models.helpers.mixed import capacity_of, native, reference, run_mixed
from tests.helpers import shared
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

MIXED = {"attn_q": "Q4_0", "attn_k": "Q5_0", "attn_v": "Q8_0", "ffn_down": "Q4_1", "ffn_up": "F16"}


def formats(name: str) -> str:
    return next((kind for part, kind in MIXED.items() if f".{part}." in name), "Q5_1")


def tiny_folder(folder: Path) -> Path:
    write_checkpoint(folder)
    config = folder / "config.json"
    rope = '"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}'
    config.write_text(config.read_text().replace('"rope_theta": 10000.0', rope))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: Any) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("files") / "tiny")


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(t, marks=pytest.mark.feature("gguf", t, "runs"))
        for t in ("reference", "cpu", "vulkan")
    ],
)
def test_mixed_blocks_run_as_they_lie(
    target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The logits of transformers on the dequantized weights."""
    oracle = make_checkpoint("qwen2", tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "m-Q4_0.gguf", formats))
    assert file.quantized
    parameters = dict(oracle.named_parameters())
    with torch.no_grad():
        for name in file.tensors.shapes:
            parameters[name].copy_(torch.from_numpy(file.tensors.read(name).astype(np.float64)))
    plan = make_plan(file, get_target("cpu"), Options(quant="keep", context=128))
    assert set(plan.schemes.values()) >= {"int4_g32", "int5_g32", "int8_g32", "int4m_g32", "f16"}
    if target == "reference":
        assert run_mixed(reference(plan, capacity_of(plan)), oracle, 128) < 2e-5
    elif target == "vulkan":  # float32 throughout
        request.getfixturevalue("vulkan")
        row = get_target("vulkan", Choices(f16=False))
        plan = make_plan(file, row, Options(quant="keep", context=128, max_batch=8))
        executor = native(plan, tmp_path, capacity_of(plan), DeviceHandle("webgpu"))
        assert run_mixed(executor, oracle, 128) < 1e-3
        executor.close()
    else:  # int8 activations, and float16 pages
        assert run_mixed(native(plan, tmp_path, capacity_of(plan)), oracle, 128) < 0.5


def test_split_files_are_one_model(tiny: Path, tmp_path: Path) -> None:
    whole = write_gguf(tiny, tmp_path / "whole.gguf", metadata=metadata_of(tiny))
    (tmp_path / "parts").mkdir()
    first = write_gguf(tiny, tmp_path / "parts" / "m.gguf", metadata=metadata_of(tiny), split=5)
    assert first.name == "m-00001-of-00004.gguf"
    one, other = open_checkpoint(whole), open_checkpoint(first)
    assert one.tensors.shapes == other.tensors.shapes and one.config == other.config
    for name in one.tensors.shapes:
        np.testing.assert_array_equal(one.tensors.read(name), other.tensors.read(name))
    second = first.with_name("m-00002-of-00004.gguf")
    with pytest.raises(CheckpointError, match="part 2 of 4; give the first, m-00001"):
        open_checkpoint(second)
    second.unlink()
    with pytest.raises(CheckpointError, match=r"1 of its 4 parts are missing .m-00002"):
        open_checkpoint(first)


def test_a_folder_of_several_lists_them(tiny: Path, tmp_path: Path) -> None:
    for name in ("tiny-Q8_0", "tiny-Q4_0"):
        write_gguf(tiny, tmp_path / f"{name}.gguf", metadata=metadata_of(tiny))
    with pytest.raises(CheckpointError, match=r"tiny-Q4_0\.gguf, tiny-Q8_0\.gguf"):
        open_checkpoint(tmp_path)
    assert select_model(tmp_path, "q8_0").name == "tiny-Q8_0.gguf"
    with pytest.raises(CheckpointError, match="has no Q2_K"):
        select_model(tmp_path, "Q2_K")
    (tmp_path / "tiny-Q8_0.gguf").unlink()
    assert open_checkpoint(tmp_path).folder.name == "tiny-Q4_0.gguf"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gemma-3-270m-q4_k_m.gguf", "Q4_K_M"),
        ("Llama-3.2-1B-Instruct-IQ4_XS.gguf", "IQ4_XS"),
        ("Qwen3-8B-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("ggml-model-f16.gguf", "F16"),
        ("model.gguf", "model"),
    ],
)
def test_names_of_quantizations(name: str, found: str) -> None:
    assert quantization_of(name) == found


def test_formats_without_a_scheme_are_named(tiny: Path, tmp_path: Path) -> None:
    path = write_gguf(tiny, tmp_path / "t.gguf", metadata=metadata_of(tiny))
    data = path.read_bytes()
    # Q1_0 (number 41) in place of F32 in the entry of the first matrix
    place = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    path.write_bytes(data[:place] + (41).to_bytes(4, "little") + data[place + 4 :])
    with pytest.raises((UnsupportedError, CheckpointError), match=r"token_embd\.weight"):
        checkpoint = open_checkpoint(path)
        checkpoint.tensors.check_dtypes(checkpoint.tensors.shapes)


def test_what_is_shown_of_a_kept_file(tiny: Path, tmp_path: Path) -> None:
    """`mlcc show` prints the file's own schemes, not those of the recipe for the rest."""
    path = write_gguf(tiny, tmp_path / "t.gguf", formats, metadata_of(tiny))
    options = Options(quant="keep", context=128)
    plan = make_plan(open_checkpoint(path), get_target("reference"), options)
    shown = quantization_info(plan).options
    stored = open_checkpoint(path).tensors
    schemes = {**stored.nearest, **stored.schemes}
    linears = {s for n, s in schemes.items() if n.startswith("model.layers.") and "proj" in n}
    assert set(str(shown["linear"]).split(", ")) == linears
    assert shown["head"] == shown["embedding"] == schemes["model.embed_tokens.weight"]


def test_other_files_are_refused(tiny: Path, tmp_path: Path) -> None:
    extra = {"general.type": "mmproj"}
    path = write_gguf(tiny, tmp_path / "a.gguf", metadata=extra)
    with pytest.raises(UnsupportedError, match="type 'mmproj'"):
        open_checkpoint(path)


def test_the_command_line_answers_from_a_file(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", shared.own_cache(tmp_path / "cache"))
    path = write_gguf(tiny, tmp_path / "tiny-Q4_0.gguf", formats, metadata_of(tiny))
    run = ["run", str(path), "Hello", "--max-tokens", "4", "--context", "64"]
    first = CliRunner().invoke(cli, run)
    assert first.exit_code == 0, first.output + first.stderr
    again = CliRunner().invoke(cli, run)
    assert again.exit_code == 0 and "compiling it once" not in again.stderr
    listed = CliRunner().invoke(cli, ["list"])
    assert "keep" in listed.output


def test_weights_of_a_file_are_calibrated(tiny: Path, tmp_path: Path) -> None:
    """The tokens are those of the file's own tokenizer."""
    file = open_checkpoint(write_gguf(tiny, tmp_path / "m.gguf", metadata=metadata_of(tiny)))
    decisions: list[tuple[str, str]] = []
    progress = Progress(decided=lambda what, value: decisions.append((what, value)))
    options = Options(quant="q4", context=64, max_batch=2, calibrate="default")
    compile_model(file, get_target("reference"), tmp_path / "out", options, progress)
    assert any(what == "calibration" for what, _ in decisions)
