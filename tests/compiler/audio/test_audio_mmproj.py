"""Audio towers in GGUF files of their own (mmproj) against the checkpoints they were made of,
written as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from mlcc.artifact.schema import AudioInputInfo
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc.loader import open_model
from mlcc.multimodal.audio.clips import AudioProcessor
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.open import open_checkpoint
from mlcc_compiler.checkpoint.towers.audio_input import audio_input_of
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import AUDIO, FAMILIES, ROWS, array_of, sounds
from tests.compiler.audio.test_audio_input import BOUND, expected, request_of
from tests.compiler.audio.test_whisper import answers
from tests.compiler.checkpoint.helpers.gguf_of import add, mapped, write_gguf
from tests.compiler.checkpoint.test_gguf_architectures import check_equal
from tests.compiler.vision.mmproj_of import _text

KINDS = {"qwen2_audio": "qwen2a", "voxtral": "voxtral", "qwen2_5_omni": "qwen2.5o"}
TOKENS = {"qwen2_audio": "<|AUDIO|>", "voxtral": "[AUDIO]", "qwen2_5_omni": "<|AUDIO|>"}
N_WINDOW = 100
"""Rows that Qwen2.5-Omni's encoder reads apart, as published: no file says so."""


def save(family: str, folder: Path) -> Any:
    """The checkpoint, whose token of sound is the published one's, and transformers' model."""
    oracle = FAMILIES[family](folder)
    config = json.loads((folder / "config.json").read_text())
    if family == "qwen2_5_omni":
        config["audio_config"]["n_window"] = N_WINDOW
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|AUDIO|>", TOKENS[family]))
    return oracle


def write_pair(folder: Path, family: str, **more: Any) -> tuple[Path, Path]:
    """model.gguf and mmproj-model.gguf. more: metadata that replaces the converter's."""
    config = json.loads((folder / "config.json").read_text())
    rows = config["text_config"]["vocab_size"]
    tokens = [f"w{i}" for i in range(rows)]
    tokens[AUDIO], tokens[2] = TOKENS[family], tokens[0] + tokens[1]
    vocabulary = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i == AUDIO else 1 for i in range(rows)],
        "tokenizer.ggml.merges": [f"{tokens[0]} {tokens[1]}"],
    }
    text = _text(folder)
    if family == "qwen2_5_omni":  # converted as Qwen2.5-VL is
        own = json.loads((text / "config.json").read_text())
        (text / "config.json").write_text(json.dumps({**own, "model_type": "qwen2_5_vl_text"}))
    model = write_gguf(text, folder / "model.gguf", metadata=vocabulary)
    out = folder / "mmproj-model.gguf"
    writer = gguf.GGUFWriter(out, "clip")
    audio = config["audio_config"]
    keys = {
        "general.type": "mmproj",
        "clip.has_audio_encoder": True,
        "clip.projector_type": KINDS[family],
        "clip.audio.projection_dim": config["text_config"]["hidden_size"],
        "clip.audio.embedding_length": audio.get("d_model") or audio["hidden_size"],
        "clip.audio.feed_forward_length": audio.get("encoder_ffn_dim")
        or audio["intermediate_size"],
        "clip.audio.block_count": audio.get("encoder_layers") or audio["num_hidden_layers"],
        "clip.audio.attention.head_count": audio.get("encoder_attention_heads")
        or audio["num_attention_heads"],
        "clip.audio.attention.layer_norm_epsilon": 1e-5,
        "clip.audio.num_mel_bins": audio["num_mel_bins"],
        **more,
    }
    for key, value in keys.items():
        add(writer, key, value)
    for name, array in tensors_of(folder, family).items():
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, out


def tensors_of(folder: Path, family: str) -> dict[str, np.ndarray[Any, Any]]:
    """Biases of convolutions are columns; Qwen2.5-Omni's positions are computed."""
    names, found = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4), {}
    for name, array in load_file(folder / "model.safetensors").items():
        own = name.removeprefix("model.").removeprefix("thinker.")
        if own.startswith("multi_modal_projector"):
            own = "audio." + own
        if not own.startswith(("audio.", "audio_tower.")) or "audio_bos_eos_token" in own:
            continue  # transformers does not read that one
        if own.endswith(("conv1.bias", "conv2.bias")):
            array = array[:, None]
        found[mapped(names, own)] = array
    if family == "qwen2_5_omni":
        found["a.position_embd.weight"] = np.zeros((ROWS, 32), np.float32)
        found["v.blk.0.ln1.weight"] = np.ones(4, np.float32)
    return found


@pytest.mark.feature("gguf", "reference", "runs")
@pytest.mark.parametrize("family", KINDS)
def test_the_tower_is_the_same(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    model, tower = write_pair(tmp_path, family)
    checkpoint, file = Checkpoint.open(tmp_path), open_checkpoint(model)
    wanted, found = audio_input_of(checkpoint), audio_input_of(file)
    assert wanted is not None and found is not None
    parts = {"begin": "", "end": ""}  # the small vocabulary has none of these tokens
    for name, value in {**vars(wanted.info), **parts}.items():
        same = getattr(found.info, name)
        assert same == (value.removesuffix("_thinker") if name == "processor" else value), name
    plans = [
        make_plan(each, get_target("reference"), Options(quant="f32", vision=False, max_batch=1))
        for each in (wanted, found)
    ]
    check_equal(*(plan.config for plan in plans), "config")
    assert len(plans[0].sources) > 30
    for own, name in plans[0].sources.items():
        one, other = wanted.tensors.read(name), found.tensors.read(plans[1].sources[own])
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-7, err_msg=name)
    check_equal(*(build_model(each.config, 128).config for each in (checkpoint, file)), "text")
    senses = [each.sense for each in make_plan(file, get_target("reference"), Options()).towers]
    assert senses == ["audio"]
    note, *more = file.notes
    assert note == f"{tower.name} has its audio tower; --no-vision leaves it out"
    assert bool(more) == (family == "qwen2_5_omni")  # which has a vision tower too


@pytest.mark.feature("gguf", "reference", "runs")
def test_answers_equal_transformers(tmp_path: Path) -> None:
    family, heard = "voxtral", sounds("voxtral")[:1]
    oracle = save(family, tmp_path)
    file, options = open_checkpoint(write_pair(tmp_path, family)[0]), Options(quant="f32")
    tower = audio_input_of(file)
    assert tower is not None and isinstance(tower.info, AudioInputInfo)
    processor = AudioProcessor(tower.info)
    request = request_of("1", [5, 9, -1, 7], [processor.clips(array_of(heard[0]), "audio")])
    target = get_target("reference", Choices())
    model = open_model(compile_model(file, target, tmp_path / "out", options, Progress()))
    found = answers(model, [request])["1"]
    model.close()
    wanted = expected(family, oracle, request, heard)
    assert [token for token, _ in found] == [token for token, _ in wanted]
    assert [one for _, one in found] == pytest.approx([one for _, one in wanted], abs=BOUND)


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"clip.projector_type": "ultravox"}, UnsupportedError, "kind 'ultravox' is not built"),
        ({"clip.projector_type": "voxtral"}, UnsupportedError, "and the model is a qwen2;"),
        ({"clip.audio.projection_dim": 99}, CheckpointError, "makes rows of 99 numbers"),
        ({"clip.audio.block_count": 0}, CheckpointError, "clip.audio.block_count' must be"),
    ],
)
def test_a_tower_that_is_not_built_or_of_another_model(
    tmp_path: Path, more: dict[str, Any], kind: type[Exception], message: str
) -> None:
    save("qwen2_audio", tmp_path)
    model, tower = write_pair(tmp_path, "qwen2_audio", **more)
    with pytest.raises(kind, match=message):
        open_checkpoint(model, tower)
    (note,) = open_checkpoint(model).notes
    assert note.startswith("the model reads text only: ") and message in note
