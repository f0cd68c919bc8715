"""The tower of a multimodal checkpoint: its settings, its schemes, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.artifact.folder import Artifact
from mlcc.engine_args import EngineArgs
from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc.loader import open_model, tower_bytes
from mlcc.model.memory.planner import needed_bytes, plan_capacity
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.towers.vision import tower_of
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.vision.checkpoints import (
    MEAN,
    PROCESSOR,
    STD,
    TOWER,
    gemma3,
    gemma4,
    internvl,
    llama4,
    llava,
    mistral3,
    qwen3_vl,
    qwen3_vl_moe,
    smolvlm,
    transpose_experts,
)
from tests.compiler.vision.inputs import pictures, tile


def compiled(folder: Path, out: Path, **options: Any) -> Path:
    target = get_target("cpu", Choices())
    return compile_model(Checkpoint.open(folder), target, out, Options(**options), Progress())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smolvlm")
    smolvlm(folder)
    return folder


def test_the_tower_of_codes_is_near_that_of_floats(checkpoint: Path, tmp_path: Path) -> None:
    """A 4-bit model has a tower of 8 bits, a model of floats one of the same floats."""
    rows = {}
    for quant, own in (("f32", "f32"), ("q4", "q8"), ("bf16", "bf16")):
        model = open_model(compiled(checkpoint, tmp_path / quant, quant=quant))
        manifest = Artifact.open(tmp_path / quant / "vision").manifest
        assert (manifest.quantization.name, manifest.encoder and manifest.encoder.task) == (
            own,
            "vision",
        )
        assert model.tower is not None
        rows[quant] = np.frombuffer(model.tower.encode(tile(pictures("smolvlm")[0], 0)), np.float32)
        model.close()
    scale = float(rows["f32"].std())
    assert 0 < np.abs(rows["q4"] - rows["f32"]).max() < 0.05 * scale
    assert 0 < np.abs(rows["bf16"] - rows["f32"]).max() < 0.05 * scale


def test_amx_multiplies_and_activates_at_once(tmp_path: Path) -> None:
    """In each layer of the tower, whose widths are whole tiles."""
    smolvlm(tmp_path, {**TOWER, "intermediate_size": 64})
    row, dump = get_target("cpu", Choices(cpu="avx512-amx")), tmp_path / "ir"
    options = Options(quant="bf16", max_batch=2, max_step_tokens=64, dump_ir=dump)
    compile_model(Checkpoint.open(tmp_path), row, tmp_path / "out", options, Progress())
    (phase,) = (dump / "vision").glob("*_gated_fused.py")
    text = phase.read_text()
    assert text.count('"mlcc.activated_linear"') == TOWER["num_hidden_layers"]
    assert '"mlcc.activated"' not in text


def test_the_towers_memory_is_not_the_pages(checkpoint: Path, tmp_path: Path) -> None:
    """With exactly as much memory as both need every page is there, with less there are fewer."""
    artifact = Artifact.open(compiled(checkpoint, tmp_path / "out", quant="f32"))
    manifest, tower = artifact.manifest, tower_bytes(artifact)
    assert tower > sum(
        part.bytes for part in Artifact.open(artifact.folder / "vision").manifest.files
    )
    full = plan_capacity(manifest)
    both = needed_bytes(full, manifest) + tower
    pools = []
    for given in (both, both - tower // 2):
        args = EngineArgs(memory_bytes=given, prefix_cache=False)
        model = open_model(artifact.folder, args)
        pools.append(model.capacity.pools[0])
        model.close()
    assert pools[0] == full.pools[0] > pools[1]


def test_without_the_tower(checkpoint: Path, tmp_path: Path) -> None:
    out = compiled(checkpoint, tmp_path / "text", quant="f32", vision=False)
    manifest = Artifact.open(out).manifest
    assert (manifest.vision, manifest.embeddings, manifest.token_columns) == (None, None, ())
    assert not (out / "vision").exists()
    model = open_model(out)
    assert model.tower is None
    model.close()


def test_how_images_are_prepared(checkpoint: Path, tmp_path: Path) -> None:
    tower = tower_of(Checkpoint.open(checkpoint))
    assert tower is not None
    info = tower.info
    assert (info.processor, info.image_token, info.image_token_id) == ("idefics3", "<image>", 130)
    assert (info.patch_size, info.merge_size, info.image_size) == (4, 2, 32)
    assert (info.mean, info.std, info.resample) == (tuple(MEAN), tuple(STD), "lanczos")
    assert (info.longest_edge, info.split) == (64, True)
    gemma3(tmp_path)
    other = tower_of(Checkpoint.open(tmp_path))
    assert other is not None
    assert (other.info.processor, other.info.merge_size) == ("gemma3", 2)


def changed(checkpoint: Path, folder: Path, **values: Any) -> Checkpoint:
    """The checkpoint with other settings of the image processor; None = without the file."""
    for path in checkpoint.glob("*.*"):
        shutil.copy(path, folder)
    (folder / "preprocessor_config.json").unlink()
    if values:
        (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **values}))
    return Checkpoint.open(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "has a vision tower and no preprocessor_config.json"),
        ({"image_std": [0.5, 0.0, 0.5]}, "'image_std' has a zero"),
        ({"image_mean": [0.5]}, "'image_mean' must be three numbers"),
        ({"resample": 5}, "'resample' 5 is none of 0, 1, 2, 3"),
        ({"max_image_size": {"longest_edge": 64}}, "'max_image_size' must be the tower's"),
    ],
)
def test_settings_that_make_no_sense(
    checkpoint: Path, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        tower_of(changed(checkpoint, tmp_path, **values))


def test_settings_as_transformers_5_saves_them(checkpoint: Path, tmp_path: Path) -> None:
    found = changed(checkpoint, tmp_path)
    own = json.loads((checkpoint / "preprocessor_config.json").read_text())
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": own}))
    first, second = tower_of(Checkpoint.open(checkpoint)), tower_of(found)
    assert first is not None and second is not None
    assert first.info == second.info


def test_a_text_part_with_the_whole_models_config_has_no_tower(
    checkpoint: Path, tmp_path: Path
) -> None:
    import safetensors.numpy as numbers

    for path in checkpoint.glob("*.*"):
        shutil.copy(path, tmp_path)
    tensors = numbers.load_file(checkpoint / "model.safetensors")
    text = {name: tensor for name, tensor in tensors.items() if ".text_model." in name}
    numbers.save_file(
        text | {"lm_head.weight": tensors["lm_head.weight"]}, tmp_path / "model.safetensors"
    )
    assert tower_of(Checkpoint.open(tmp_path)) is None
    model = open_model(compiled(tmp_path, tmp_path / "out", quant="f32"))
    assert model.tower is None
    model.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"deepstack_visual_indexes": [3]}, "deepstack_visual_indexes"),
        ({"num_position_embeddings": 26}, "num_position_embeddings"),
        ({"hidden_act": "relu"}, "vision_config"),
    ],
)
def test_a_qwen3_vl_that_makes_no_sense(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    qwen3_vl(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["vision_config"] |= values
    path.write_text(json.dumps(config))
    with pytest.raises(MlccError, match=message):
        compiled(tmp_path, tmp_path / "out", quant="f32")


@pytest.mark.parametrize(
    ("family", "outer", "vision", "message"),
    [
        (llama4, {}, {"pixel_shuffle_ratio": 0.25}, "pixel_shuffle_ratio"),
        (llama4, {}, {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters"),
        (llama4, {}, {"vision_output_dim": 48}, "vision_output_dim"),
        (llama4, {}, {"image_size": 64}, "'size' must be the tower's image_size"),
        (llava, {"vision_feature_select_strategy": "full"}, {}, "vision_feature_select_strategy"),
        (llava, {"vision_feature_layer": [-2, 1]}, {}, "vision_feature_layer"),
        (llava, {"vision_feature_layer": -9}, {}, "vision_feature_layer"),
        (llava, {"projector_hidden_act": "relu"}, {}, "projector_hidden_act"),
        (llava, {}, {"image_size": 64}, "crop_size"),
        (mistral3, {"projector_hidden_act": "relu"}, {}, "projector_hidden_act"),
        (mistral3, {}, {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters"),
        (internvl, {}, {"use_qk_norm": True}, "use_qk_norm"),
        (internvl, {}, {"norm_type": "rms_norm"}, "norm_type"),
        (internvl, {"downsample_ratio": 0.3}, {}, "downsample_ratio"),
        (internvl, {}, {"image_size": [32, 64]}, "image_size"),
        (gemma4, {}, {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters"),
        (gemma4, {}, {"attention_bias": True}, "attention_bias"),
        (gemma4, {}, {"head_dim": 22}, "head_dim"),
        (gemma4, {}, {"patch_size": 8}, "patch_size"),
        (gemma4, {}, {"position_embedding_size": 139}, "'max_soft_tokens' must be at most 69"),
    ],
)
def test_a_tower_that_is_not_built(
    tmp_path: Path, family: Any, outer: dict[str, Any], vision: dict[str, Any], message: str
) -> None:
    family(tmp_path)
    path = tmp_path / "config.json"
    config = {**json.loads(path.read_text()), **outer}
    config["vision_config"] |= vision
    path.write_text(json.dumps(config))
    with pytest.raises(MlccError, match=message):
        compiled(tmp_path, tmp_path / "out", quant="f32")


def test_how_images_of_pixtral_are_prepared(tmp_path: Path) -> None:
    """Its longest side, and no more patches than the tower is compiled for."""
    mistral3(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    for size, edge, rows in ((64, 64, 64), (60, 60, 64), (1540, 280, 35 * 35)):
        path.write_text(json.dumps({**PROCESSOR, "size": {"longest_edge": size}}))
        tower = tower_of(Checkpoint.open(tmp_path))
        assert tower is not None
        assert (tower.info.processor, tower.info.image_size) == ("pixtral", 0)
        assert (tower.info.longest_edge, tower.config["max_rows"]) == (edge, rows)
    path.write_text(json.dumps({**PROCESSOR, "size": {"height": 64, "width": 32}}))
    with pytest.raises(CheckpointError, match="'size' must be one longest edge"):
        tower_of(Checkpoint.open(tmp_path))


def test_how_images_of_gemma_4_are_prepared(tmp_path: Path) -> None:
    """Those of a real checkpoint's file, whose mean and deviation are not used."""
    gemma4(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    own = json.loads(path.read_text())
    plain = {"image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0]}
    path.write_text(json.dumps({**own, **plain, "resample": 3}))
    tower = tower_of(Checkpoint.open(tmp_path))
    assert tower is not None
    info = tower.info
    assert (info.processor, info.resample, info.mean, info.std) == (
        "gemma4", "bicubic", (0.5,) * 3, (0.5,) * 3,
    )  # fmt: skip
    assert (info.max_pixels, info.position_axes) == (70 * 8 * 8, 140)
    assert tower.tensors.shapes["vision_model.pos_embed.position_table"] == (280, 32)
    path.write_text(json.dumps({**own, "do_normalize": True}))
    with pytest.raises(CheckpointError, match="'do_normalize' must be false"):
        tower_of(Checkpoint.open(tmp_path))


def test_ranks_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="--tp 2: images are not read by several ranks"):
        compiled(checkpoint, tmp_path / "out", quant="f32", ranks=2)


def test_a_tower_that_lacks_a_tensor_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    import safetensors.numpy as numbers

    for path in checkpoint.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, tmp_path)
    tensors = numbers.load_file(checkpoint / "model.safetensors")
    del tensors["model.vision_model.post_layernorm.weight"]
    numbers.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(MlccError, match="post_layernorm"):
        compiled(tmp_path, tmp_path / "out", quant="f32")
    assert not (tmp_path / "out").exists()


def test_experts_in_both_orders_of_their_sides(tmp_path: Path) -> None:
    """Those of published Qwen3-VL mixtures, and as transformers 5 saves them."""
    qwen3_vl_moe(tmp_path)
    published = Checkpoint.open(tmp_path).tensors
    read = {name: published.read(name) for name in published.shapes if ".experts." in name}
    assert len(read) == 2 * 5 * 3
    transpose_experts(tmp_path)
    again = Checkpoint.open(tmp_path).tensors
    assert all(np.array_equal(again.read(name), matrix) for name, matrix in read.items())
