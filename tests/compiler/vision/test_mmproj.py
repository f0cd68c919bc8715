"""Towers in GGUF files of their own (mmproj) against the checkpoints they were made of."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc.loader import open_model
from mlcc.model_cache.cache import fingerprint
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.gguf.files import models_in, stem_of
from mlcc_compiler.checkpoint.gguf.mmproj import find_mmproj
from mlcc_compiler.checkpoint.open import open_checkpoint
from mlcc_compiler.checkpoint.towers.audio_input import audio_input_of
from mlcc_compiler.checkpoint.towers.vision import tower_of
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import GEMMA4_TOWER as GEMMA4_HEARS
from tests.compiler.checkpoint.test_gguf_architectures import LLAMA4_LAYERS, check_equal
from tests.compiler.models.helpers.checkpoints import GEMMA4, SMALL
from tests.compiler.vision import mmproj_of
from tests.compiler.vision.checkpoints import (
    FAMILIES,
    GEMMA4_IMAGES,
    GEMMA4_TOWER,
    IMAGE,
    _saved,
    llama4,
    qwen3_vl_moe,
)
from tests.compiler.vision.inputs import pictures
from tests.compiler.vision.mmproj_of import SOUND, TOKENS, write_mmproj, write_pair
from tests.compiler.vision.test_families import PROMPTS, answers, request_of

NOT_IN_FILES = ("image_token", "resample")
"""What the converter does not write: that of the published checkpoints is taken."""


OWN = {
    "qwen3_vl_moe": partial(qwen3_vl_moe, dense=()),
    "llama4": partial(llama4, text=LLAMA4_LAYERS),
}
"""Families with other layers in llama.cpp's files."""


def save(family: str, folder: Path, whole: bool = False) -> None:
    """llama.cpp's files have experts in every layer or in none, and the token in whose place Gemma
    4 looks up what it adds to images is 0; Llama 4's rope and tiles are those of published ones.
    The output of a tower's last layer is taken; LLaVA's is not computed, unless the tower is to be
    `whole`."""
    OWN.get(family, FAMILIES[family])(folder)
    config = json.loads((folder / "config.json").read_text())
    if family == "gemma4":
        config["text_config"]["pad_token_id"] = 0
        (folder / "config.json").write_text(json.dumps(config))
    if family == "llama4":
        config["vision_config"]["rope_parameters"]["rope_theta"] = 10000.0
        (folder / "config.json").write_text(json.dumps(config))
        file = folder / "preprocessor_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "max_patches": 16}))
    if "vision_feature_layer" in config and (whole or family != "llava"):
        (folder / "config.json").write_text(json.dumps({**config, "vision_feature_layer": -1}))


@pytest.mark.parametrize("family", TOKENS)
def test_the_tower_is_the_same(family: str, tmp_path: Path) -> None:
    save(family, tmp_path, whole=True)
    model, _ = write_pair(tmp_path, family)
    wanted, found = tower_of(Checkpoint.open(tmp_path)), tower_of(open_checkpoint(model))
    assert wanted is not None and found is not None
    for name, value in vars(wanted.info).items():
        if name not in NOT_IN_FILES:
            same = getattr(found.info, name)
            assert same == (value if name == "grids" else pytest.approx(value)), name
    assert (found.info.image_token, found.info.image_token_id) == (TOKENS[family], IMAGE)
    plans = [
        make_plan(tower, get_target("reference"), Options(quant="f32", vision=False, max_batch=1))
        for tower in (wanted, found)
    ]
    check_equal(*(plan.config for plan in plans), "config")
    for name in plans[0].sources.values():
        one, other = (tower.tensors.read(name) for tower in (wanted, found))
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-7, err_msg=name)
    text, same = Checkpoint.open(tmp_path), open_checkpoint(model)
    configs = [build_model(each.config, 128).config for each in (text, same)]
    check_equal(*configs, "text")
    (note,) = same.notes
    assert note == f"mmproj-{model.stem}-f16.gguf has its vision tower; --no-vision leaves it out"


@pytest.mark.feature("gguf", "reference", "runs")
@pytest.mark.parametrize("family", TOKENS)
def test_answers_are_those_of_the_checkpoint(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    model, _ = write_pair(tmp_path, family)
    options = Options(quant="f32", max_batch=4, max_step_tokens=24)
    found = []
    for number, each in enumerate((Checkpoint.open(tmp_path), open_checkpoint(model))):
        target = get_target("reference", Choices())
        out = compile_model(each, target, tmp_path / f"out{number}", options, Progress())
        opened = open_model(out)
        requests = [
            request_of(str(i), words, pictures(family), family) for i, words in enumerate(PROMPTS)
        ]
        found.append(answers(opened, requests))
        opened.close()
    for name, wanted in found[0].items():
        assert [token for token, _ in wanted] == [token for token, _ in found[1][name]]
        assert [p for _, p in wanted] == pytest.approx([p for _, p in found[1][name]], abs=1e-4)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of Qwen2.5-VL and its two files."""
    folder = tmp_path_factory.mktemp("pair")
    FAMILIES["qwen2_5_vl"](folder)
    write_pair(folder, "qwen2_5_vl", "Some-VL-Q4_K_M")
    return folder


def test_a_tower_is_found_by_its_name(pair: Path, tmp_path: Path) -> None:
    for name in ("Some-VL-Q4_K_M", "Some-VL-00001-of-00001", "other-VL-Q4_K_M"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    model = tmp_path / "Some-VL-Q4_K_M.gguf"
    assert find_mmproj(model) is None
    names = ["mmproj-Some-VL-Q8_0", "some-vl-mmproj-F32", "mmproj-F16"]
    for name in names:
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
        found = find_mmproj(model)
        assert found is not None and found.stem == name
    assert find_mmproj(tmp_path / "other-VL-Q4_K_M.gguf") == tmp_path / "mmproj-F16.gguf"
    assert {path.stem for path in models_in(tmp_path).values()}.isdisjoint(names)
    assert stem_of("mmproj-google_gemma-3-4b-it-bf16.gguf") == "google_gemma-3-4b-it"


def test_a_tower_that_appears_is_compiled(pair: Path, tmp_path: Path) -> None:
    """The cache of compiled models knows the files beside a model."""
    model = tmp_path / "one.gguf"
    model.write_bytes(b"GGUF")
    before = fingerprint(str(model))
    (tmp_path / "MMPROJ-F16.gguf").write_bytes(b"GGUF")
    (tmp_path / "two.gguf").write_bytes(b"GGUF")
    names = [name for name, *_ in fingerprint(str(model))]
    assert (len(before), names) == (1, ["one.gguf", "MMPROJ-F16.gguf"])


def test_a_file_that_is_given_is_used(pair: Path, tmp_path: Path) -> None:
    model = shutil.copy(pair / "gguf" / "Some-VL-Q4_K_M.gguf", tmp_path / "any.gguf")
    tower = shutil.copy(pair / "gguf" / "mmproj-Some-VL-Q4_K_M-f16.gguf", tmp_path / "eyes.gguf")
    assert tower_of(open_checkpoint(model)) is None
    found = open_checkpoint(model, tower)
    assert tower_of(found) is not None and not found.notes
    with pytest.raises(UnsupportedError, match="has its own vision tower"):
        open_checkpoint(pair, tower)


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"clip.projector_type": "gemma3nv"}, UnsupportedError, "kind 'gemma3nv' is not built"),
        ({"clip.projector_type": "ldp"}, UnsupportedError, "kind 'ldp' is not built"),
        ({"clip.projector_type": "mlp"}, UnsupportedError, "and the model is a qwen2vl"),
        ({"clip.projector_type": "gemma3"}, UnsupportedError, "and the model is a qwen2vl"),
        ({"clip.vision.projection_dim": 99}, CheckpointError, "makes rows of 99 numbers"),
        ({"clip.vision.patch_size": 0}, CheckpointError, "clip.vision.patch_size' must be"),
        ({"clip.vision.patch_size": 5}, CheckpointError, "patches of 5 pixels a side"),
        ({"clip.vision.block_count": 2**31 - 1}, CheckpointError, "has no tensor"),
        ({"clip.vision.image_mean": [0.5]}, CheckpointError, "image_mean' must be three numbers"),
    ],
)
def test_a_tower_that_is_not_built_or_of_another_model(
    pair: Path, tmp_path: Path, more: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """Is refused if it was asked for; beside the model it is left out with a note."""
    model = shutil.copy(pair / "gguf" / "Some-VL-Q4_K_M.gguf", tmp_path / "model.gguf")
    tower = write_mmproj(pair, tmp_path / "mmproj-f16.gguf", "qwen2_5_vl", **more)
    with pytest.raises(kind, match=message):
        open_checkpoint(model, tower)
    found = open_checkpoint(model)
    assert tower_of(found) is None
    (note,) = found.notes
    assert note.startswith("the model reads text only: ") and message in note


LLAVA_FILES: dict[str, tuple[str, dict[str, Any], tuple[str, ...], str]] = {
    "1.6": ("llava", {}, ("model.image_newline",), "a tower of LLaVA 1.6 is not built"),
    "SigLIP": ("llava", {}, ("-v.class_embd",), "a tower of SigLIP without tiles is not built"),
    "layers": ("llava", {"clip.vision.feature_layer": [1, 2]}, (), "feature_layer' must be"),
    "odd": (
        "llava_onevision",
        {"clip.vision.image_grid_pinpoints": [32, 32, 64]},
        (),
        "image_grid_pinpoints' must be pairs",
    ),
    "width": ("llava", {}, ("mm.2.weight",), "makes rows of 3 numbers"),
}


@pytest.mark.parametrize("case", LLAVA_FILES)
def test_other_files_of_the_kind_mlp_are_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, more, names, message = LLAVA_FILES[case]
    save(family, tmp_path)
    made = mmproj_of._tensors

    def changed(*given: Any) -> Any:
        found = made(*given)
        for name in names:
            found[name] = np.ones((3, 48), np.float32)
            if name.startswith("-"):
                del found[name], found[name[1:]]
        return found

    monkeypatch.setattr(mmproj_of, "_tensors", changed)
    model, tower = write_pair(tmp_path, family, **more)
    with pytest.raises((CheckpointError, UnsupportedError), match=message):
        open_checkpoint(model, tower)


def test_both_towers_of_a_gemma_4(tmp_path: Path) -> None:
    """Its file has both; the windows in which rows hear are those of published checkpoints."""
    windows = ("attention_chunk_size", "attention_context_left", "attention_logit_cap")
    audio = {name: size for name, size in GEMMA4_HEARS.items() if name not in windows}
    config = transformers.Gemma4Config(
        text_config={"model_type": "gemma4_text", **SMALL, **GEMMA4, "pad_token_id": 0},
        vision_config={**GEMMA4_TOWER, "use_clipped_linears": True},
        audio_config=audio,
        audio_token_id=SOUND,
        **GEMMA4_IMAGES,
    )
    _saved(transformers.Gemma4ForConditionalGeneration, config, tmp_path)
    text = (tmp_path / "tokenizer.json").read_text().replace(f'"w{SOUND}"', '"<|audio|>"')
    (tmp_path / "tokenizer.json").write_text(text)
    model, _ = write_pair(tmp_path, "gemma4")
    file = open_checkpoint(model)
    (note,) = file.notes
    assert "has its towers of vision and audio; --no-vision leaves them out" in note
    assert tower_of(file) is not None
    wanted, found = audio_input_of(Checkpoint.open(tmp_path)), audio_input_of(file)
    assert wanted is not None and found is not None and wanted.info == found.info
    plans = [
        make_plan(tower, get_target("reference"), Options(quant="f32", vision=False, max_batch=1))
        for tower in (wanted, found)
    ]
    check_equal(*(plan.config for plan in plans), "config")
    assert len(plans[0].sources) > 60 and plans[0].sources == plans[1].sources
    for name in plans[0].sources.values():
        one, other = (tower.tensors.read(name) for tower in (wanted, found))
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-7, err_msg=name)
    senses = [tower.sense for tower in make_plan(file, get_target("reference"), Options()).towers]
    assert senses == ["vision", "audio"]


def test_sound_in_a_file_of_gemma_4_is_named(tmp_path: Path) -> None:
    """Its tower is of both; the vision tower is read."""
    save("gemma4", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    heard = {"a.blk.0.ln1.weight": np.ones(4, np.float32)}
    save_file({**tensors, **heard}, tmp_path / "model.safetensors")
    model, tower = write_pair(tmp_path, "gemma4")
    (note,) = open_checkpoint(model, tower).notes
    assert note.startswith(f"the audio tower in {tower.name} is not read")
    found = open_checkpoint(model)
    assert tower_of(found) is not None and note in found.notes


def test_a_vocabulary_without_the_images_token_is_refused(pair: Path, tmp_path: Path) -> None:
    """As LLaVA's are, whose images llama.cpp places without a token."""
    data = (pair / "gguf" / "Some-VL-Q4_K_M.gguf").read_bytes()
    model = tmp_path / "model.gguf"
    model.write_bytes(data.replace(b"<|image_pad|>", b"<|imagE_pad|>"))
    with pytest.raises(UnsupportedError, match="has no '<|image_pad|>'".replace("|", r"\|")):
        open_checkpoint(model, pair / "gguf" / "mmproj-Some-VL-Q4_K_M-f16.gguf")


def test_another_name_of_a_norm_of_llama_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Gemma 4, which converters give it since they know Gemma 4."""
    save("llama4", tmp_path)
    model, tower = write_pair(tmp_path, "llama4")
    made, wanted = mmproj_of._tensors, tower_of(open_checkpoint(model))
    monkeypatch.setattr(
        mmproj_of,
        "_tensors",
        lambda *given: {n.replace("ln2", "attn_post_norm"): a for n, a in made(*given).items()},
    )
    found = tower_of(open_checkpoint(model, write_mmproj(tmp_path, tower, "llama4")))
    assert wanted is not None and found is not None
    assert "v.blk.1.attn_post_norm.bias" in found.tensors.base.found
    assert wanted.tensors.shapes == found.tensors.shapes


def test_files_with_the_older_names_of_matrices(tmp_path: Path) -> None:
    """In files of early 2025 ffn_down is an MLP's first matrix."""
    FAMILIES["gemma3"](tmp_path)
    model, tower = write_pair(tmp_path, "gemma3")
    wanted = tower_of(open_checkpoint(model))
    write_mmproj(tmp_path, tower, "gemma3", older_names=True)
    found = tower_of(open_checkpoint(model))
    assert wanted is not None and found is not None
    name = "vision_model.encoder.layers.1.mlp.fc1.weight"
    np.testing.assert_array_equal(wanted.tensors.read(name), found.tensors.read(name))
    assert wanted.config == found.config
