"""Checkpoints quantized by other tools, compiled with their quantization; and pickled ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from mlcc.device.device import DeviceHandle
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.checkpoint.test_quantized_safetensors import packed
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.compiler.models.helpers.mixed import capacity_of, native, reference, run_mixed
from tests.compiler.vision.checkpoints import qwen3_vl_moe, transpose_experts

GROUP, BITS = 32, 4
random = np.random.default_rng(0)


def to_mlx(folder: Path) -> None:
    """Every linear of a folder as MLX writes it: u32 words, scales, biases."""
    tensors = load_file(folder / "model.safetensors")
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        weight = tensors.pop(name)
        groups = weight.reshape(len(weight), -1, GROUP)
        low, high = groups.min(axis=2), groups.max(axis=2)
        scales = ((high - low) / 15).astype(np.float16)
        biases = low.astype(np.float16)
        codes = (groups - biases.astype("f4")[..., None]) / scales.astype("f4")[..., None]
        codes = np.clip(np.rint(codes), 0, 15).astype(np.uint8).reshape(weight.shape)
        stem = name.removesuffix(".weight")
        tensors |= {name: packed(codes, BITS).view(np.uint32)}
        tensors |= {f"{stem}.scales": scales, f"{stem}.biases": biases}
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": GROUP, "bits": BITS}
    (folder / "config.json").write_text(json.dumps(config))


def to_awq(folder: Path) -> None:
    """Every linear of a folder as AWQ's gemm writes it: fp8 of columns in an own order."""
    tensors = load_file(folder / "model.safetensors")
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        weight = tensors.pop(name)
        groups = weight.reshape(len(weight), -1, GROUP)
        low, high = groups.min(axis=2), groups.max(axis=2)
        scales = ((high - low) / 15).astype(np.float16)
        steps = scales.astype("f4")[..., None]
        zeros = np.rint(-low / steps[..., 0])
        codes = np.clip(np.rint(groups / steps) + zeros[..., None], 0, 15).reshape(weight.shape)
        stem = name.removesuffix(".weight")
        for part, values in (("qweight", codes), ("qzeros", np.clip(zeros, 0, 15))):
            fp8 = values.astype(np.uint8).T.reshape(values.shape[1], -1, 8)
            columns = fp8[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(values.shape[1], -1)
            tensors[f"{stem}.{part}"] = packed(columns, BITS)
        tensors[f"{stem}.scales"] = scales.T.copy()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    how = {"quant_method": "awq", "bits": BITS, "group_size": GROUP, "version": "gemm"}
    config["quantization_config"] = {**how, "zero_point": True}
    (folder / "config.json").write_text(json.dumps(config))


WRITERS = {"int4m_g32": to_mlx, "int4a_g32": to_awq}


@pytest.mark.parametrize("scheme", WRITERS)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(t, marks=pytest.mark.feature("packed", t, "runs"))
        for t in ("reference", "cpu", "vulkan")
    ],
)
def test_a_quantized_checkpoint_runs_as_it_is(
    target: str, scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The logits of transformers on the dequantized weights."""
    oracle = make_checkpoint("llama", tmp_path)
    WRITERS[scheme](tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.quantized and set(checkpoint.tensors.schemes.values()) == {scheme}
    parameters = dict(oracle.named_parameters())
    with torch.no_grad():
        for name in checkpoint.tensors.shapes:
            values = checkpoint.tensors.read(name).astype(np.float64)
            parameters[name].copy_(torch.from_numpy(values))
    options = Options(quant="keep", context=128, max_batch=8)
    plan = make_plan(checkpoint, get_target("cpu"), options)
    if target == "reference":
        assert run_mixed(reference(plan, capacity_of(plan)), oracle, 128) < 2e-5
    elif target == "vulkan":  # float32 throughout
        request.getfixturevalue("vulkan")
        row = get_target("vulkan", Choices(f16=False))
        plan = make_plan(checkpoint, row, Options(quant="keep", context=128, max_batch=8))
        executor = native(plan, tmp_path, capacity_of(plan), DeviceHandle("webgpu"))
        assert run_mixed(executor, oracle, 128) < 1e-3
        executor.close()
    else:  # activations of two bytes, and float16 pages: 8 bits would hide a scale that is off
        plan = make_plan(checkpoint, get_target("cpu"), replace(options, activations=16))
        assert run_mixed(native(plan, tmp_path, capacity_of(plan)), oracle, 128) < 0.03


def to_fp8(folder: Path, block: tuple[int, int], lost: int = 0) -> dict[str, np.ndarray]:
    """Stacked experts of a folder as Qwen3-VL's fp8 files have them, without the scales of the
    `lost` first; returns their values."""
    (file,) = folder.glob("*.safetensors")
    tensors, values = load_file(file), dict[str, np.ndarray]()
    for name in [name for name in tensors if ".mlp.experts." in name]:
        stacked = tensors.pop(name)
        rows, columns = (
            -(-size // side) for size, side in zip(stacked.shape[1:], block, strict=True)
        )
        scales = random.uniform(0.5, 2, (len(stacked), rows, columns)).astype(np.float32)
        spread = np.repeat(np.repeat(scales, block[0], axis=1), block[1], axis=2)
        spread = spread[:, : stacked.shape[1], : stacked.shape[2]]
        codes = (stacked / spread).astype(ml_dtypes.float8_e4m3fn)
        tensors |= {name: codes, f"{name}_scale_inv": scales[lost:]}
        values[name] = codes.astype(np.float32) * spread
    save_file(tensors, file)
    config = json.loads((folder / "config.json").read_text())
    how = {"quant_method": "fp8", "weight_block_size": list(block)}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": how}))
    return values


@pytest.mark.parametrize("published", [True, False], ids=["published", "saved again"])
def test_stacked_experts_in_fp8(published: bool, tmp_path: Path) -> None:
    """Of Qwen3-VL: [in, out] as published, [out, in] as transformers 5 saves them."""
    qwen3_vl_moe(tmp_path)
    if not published:
        transpose_experts(tmp_path)
    values = to_fp8(tmp_path, (16, 32))
    checkpoint = Checkpoint.open(tmp_path)
    for name, stacked in values.items():
        stem = name.rpartition(".")[0]
        for expert, matrix in enumerate(stacked):
            wanted = matrix.T if published else matrix
            kinds = ("gate", "up") if "gate_up" in name else ("down",)
            for kind, part in zip(kinds, np.split(wanted, len(kinds)), strict=True):
                read = checkpoint.tensors.read(f"{stem}.{expert}.{kind}_proj.weight")
                np.testing.assert_array_equal(read, part)
    assert len(values) == 4
    make_plan(checkpoint, get_target("cpu"), Options(context=128, max_batch=4))  # names and shapes


def test_scales_that_fit_no_experts_are_refused(tmp_path: Path) -> None:
    qwen3_vl_moe(tmp_path)
    to_fp8(tmp_path, (16, 32), lost=1)
    with pytest.raises(CheckpointError, match=r"down_proj_scale_inv' .* and the experts are 5"):
        _ = Checkpoint.open(tmp_path).tensors.shapes


def test_pickled_weights_are_read_in_a_child(tmp_path: Path) -> None:
    make_checkpoint("llama", tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    halves = [dict(list(expected.items())[::2]), dict(list(expected.items())[1::2])]
    rows = {}
    for i, half in enumerate(halves, 1):
        name = f"pytorch_model-0000{i}-of-00002.bin"
        torch.save({n: torch.from_numpy(a) for n, a in half.items()}, tmp_path / name)
        rows |= dict.fromkeys(half, name)
    (tmp_path / "model.safetensors").unlink()
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": rows}))
    tensors = Checkpoint.open(tmp_path).tensors
    assert set(tensors.shapes) == set(expected)
    name = "model.layers.1.mlp.up_proj.weight"
    np.testing.assert_array_equal(tensors.read(name), expected[name])


class Harmful:
    """Would run, if it were unpickled as Python's pickles are."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("harm"),)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    make_checkpoint("llama", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"a": Harmful()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be read as pickled weights"):
        Checkpoint.open(tmp_path).tensors  # noqa: B018
    assert not Path("harm").exists()


def test_fp8_is_quantized_already(tmp_path: Path) -> None:
    """Kept for CUDA; other targets have no kernels for it, and quantize it to 8 bits."""
    make_checkpoint("llama", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        tensors[name] = tensors[name].astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = np.ones(1, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = Checkpoint.open(tmp_path)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert checkpoint.quantized and checkpoint.tensors.schemes[name] == "e4m3_row"
    for target, scheme in (("reference", "int8_g32"), ("vulkan", "int8_g32"), ("cuda", "e4m3_row")):
        plan = make_plan(checkpoint, get_target(target), Options(quant="keep", context=32))
        assert plan.schemes[name] == scheme
        assert any("no kernels" in note for note in plan.notes) == (scheme == "int8_g32")
