"""Quantized safetensors of other tools: codes and scales follow the formats' formulas.

Each builder packs random codes as the format's tools do, beside the floats that they represent by
the format's definition; the reader's codes must represent the same floats, to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.formats.open import METHODS, check_method, packed_tensors
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.quantization import dequantize
from mlcc_compiler.quantization.schemes import E2M1, NF4

N, K, G = 64, 128, 32
NAME = "model.layers.0.mlp.up_proj"
Built = tuple[dict[str, np.ndarray], dict[str, Any], np.ndarray, str]
"""(tensors, quantization config, the floats [N, K], the scheme or "")"""
random = np.random.default_rng(3)


def codes(bits: int) -> np.ndarray:
    return random.integers(0, 1 << bits, (N, K), dtype=np.uint8)


def scales(count: int = K // G) -> np.ndarray:
    return (0.01 + random.random((N, count)) / 50).astype(np.float16)


def packed(rows: np.ndarray, bits: int) -> np.ndarray:
    """Each row as a stream of codes, low bits first, in words of 32."""
    locations = (rows[:, :, None] >> np.arange(bits)) & 1
    stream = locations.reshape(len(rows), -1).astype(np.uint8)
    return np.packbits(stream, axis=1, bitorder="little").view("<i4").copy()


def spread(numbers: np.ndarray) -> np.ndarray:
    return np.repeat(numbers.astype(np.float32), K // numbers.shape[1], axis=1)


def tiny_scales() -> np.ndarray:
    """Scales so small that float16 would round them by up to a quarter."""
    return scales().astype(np.float32) * np.float32(1e-5)


def awq(tiny: bool = False) -> Built:
    q, zeros = codes(4), random.integers(0, 16, (N, K // G), dtype=np.uint8)
    s = tiny_scales() if tiny else scales()
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def columns(values: np.ndarray) -> np.ndarray:
        eight = values.T.reshape(values.shape[1], -1, 8)[:, :, order]
        return packed(eight.reshape(values.shape[1], -1), 4)

    tensors = {"qweight": columns(q), "qzeros": columns(zeros), "scales": s.T.copy()}
    floats = (q.astype(np.float32) - spread(zeros)) * spread(s)
    return (
        named(tensors),
        {"quant_method": "awq", "bits": 4, "group_size": G},
        floats,
        "" if tiny else f"int4a_g{G}",
    )


def gptq(bits: int = 4, order: bool = False, v2: bool = False) -> Built:
    q, s = codes(bits), scales()
    zeros = random.integers(0, 1 << bits, (N, K // G), dtype=np.uint8)
    index = random.permutation(np.arange(K) // G) if order else np.arange(K) // G
    tensors = {
        "qweight": packed(q, bits).T.copy(),
        "qzeros": packed(zeros.T - (not v2), bits),
        "scales": s.T.copy(),
        "g_idx": index.astype(np.int32),
    }
    floats = q.astype(np.float32) - zeros.astype(np.float32)[:, index]
    floats = floats * s.astype(np.float32)[:, index]
    config = {"quant_method": "gptq", "bits": bits, "desc_act": order}
    config |= {"checkpoint_format": "gptq_v2"} if v2 else {}
    return named(tensors), config, floats, "" if order else f"int{bits}a_g{G}"


def gptq_by_gptqmodel() -> Built:
    """Under the names that GPTQModel 5 and transformers' GPTQConfig write."""
    tensors, config, floats, scheme = gptq(v2=True)
    names = {"method": config["quant_method"], "format": "GPTQ_V2", "bits": 4}
    return tensors, names, floats, scheme


def awq_by_autoawq() -> Built:
    """Under the names of AutoAWQ's quant_config.json."""
    tensors, _, floats, scheme = awq()
    names = {"method": "awq", "zero_point": True, "q_group_size": G, "w_bit": 4}
    return tensors, {**names, "version": "GEMM"}, floats, scheme


def gptq_symmetric(stored: int, sym: bool | None = True, v2: bool = False) -> Built:
    """`sym` with one stored zero point everywhere: by the label, the zero is the middle, 8."""
    tensors, config, _, scheme = gptq(v2=v2)
    q = unpacked(tensors[f"{NAME}.qweight"].T.copy())
    zeros = np.full((K // G, N), stored, np.uint8)
    tensors[f"{NAME}.qzeros"] = packed(zeros, 4)
    zero = 8 if sym is not False else (stored + (not v2)) & 15
    s = spread(tensors[f"{NAME}.scales"].T.copy())
    config |= {} if sym is None else {"sym": sym}
    return tensors, config, (q.astype(np.float32) - np.float32(zero)) * s, scheme


def unpacked(words: np.ndarray) -> np.ndarray:
    """Codes of four bits."""
    data = words.view(np.uint8)
    return np.stack([data & 15, data >> 4], axis=2).reshape(len(words), -1)


def gptq_mixed(key: str) -> Built:
    """A matrix of 8 bits and rows as groups in a checkpoint of 4: GPTQModel's `dynamic`."""
    tensors, config, floats, scheme = gptq(8)
    return (
        tensors,
        config | {"bits": 4, "group_size": 128, key: {"+:.*up": {"bits": 8}}},
        floats,
        scheme,
    )


def w4a16_ordered(unset: bool = False) -> Built:
    """Groups by `weight_g_idx` (llm-compressor's actorder); -1 = not set."""
    tensors, config, floats, scheme = w4a16()
    index = np.full(K, -1) if unset else random.permutation(np.arange(K) // G)
    tensors[f"{NAME}.weight_g_idx"] = index.astype(np.int32)
    if unset:
        return tensors, config, floats, scheme
    q = unpacked(tensors[f"{NAME}.weight_packed"]).astype(np.float32) - 8
    s = tensors[f"{NAME}.weight_scale"].astype(np.float32)
    return tensors, config, q * s[:, index], ""


def w2a16() -> Built:
    q, s = codes(2), scales().astype(np.float32).astype(ml_dtypes.bfloat16)
    tensors = {"weight_packed": packed(q, 2), "weight_scale": s, "weight_shape": np.array([N, K])}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    return named(tensors), config, (q.astype(np.float32) - 2) * spread(s), f"int2_g{G}"


def w4a16(asymmetric: bool = False, tiny: bool = False) -> Built:
    q, s = codes(4), scales().astype(np.float32).astype(ml_dtypes.bfloat16)
    s = tiny_scales().astype(ml_dtypes.bfloat16) if tiny else s
    zeros = random.integers(0, 16, (N, K // G), dtype=np.uint8)
    tensors = {
        "weight_packed": packed(q, 4),
        "weight_scale": s,
        "weight_shape": np.array([N, K], np.int64),
    }
    tensors |= {"weight_zero_point": packed(zeros.T, 4).T.copy()} if asymmetric else {}
    floats = (q.astype(np.float32) - (spread(zeros) if asymmetric else 8)) * spread(s)
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    return named(tensors), config, floats, "" if tiny else f"int4{'a' * asymmetric}_g{G}"


def w8a8() -> Built:
    weight = random.integers(-127, 128, (N, K), dtype=np.int8)
    s = scales(1).astype(np.float32).astype(ml_dtypes.bfloat16)
    tensors = {"weight": weight, "weight_scale": s, "input_scale": np.ones(1, np.float32)}
    floats = weight.astype(np.float32) * s.astype(np.float32)
    config = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    return named(tensors), config, floats, "int8_row"


def fp8() -> np.ndarray:
    return random.normal(size=(N, K)).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)


def fp8_rows() -> Built:
    weight, s = fp8(), 100 * scales(1).astype(np.float32)
    floats = weight.astype(np.float32) * s
    config = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    return named({"weight": weight, "weight_scale": s}), config, floats, "e4m3_row"


def fp8_groups() -> Built:
    weight, s = fp8(), scales()
    config = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    tensors = named({"weight": weight, "weight_scale": s})
    return tensors, config, weight.astype(np.float32) * spread(s), f"e4m3_g{G}"


def fp8_blocks(columns: int = 64, most: float = 1) -> Built:
    """Kept where blocks divide the rows, and no scale is above 1."""
    s = random.random((-(-N // 32), -(-K // columns))).astype(np.float32)
    weight, s[0, 0] = fp8(), most
    whole = np.repeat(np.repeat(s, 32, axis=0)[:N], columns, axis=1)[:, :K]
    config = {"quant_method": "fp8", "weight_block_size": [32, columns]}
    tensors = named({"weight": weight, "weight_scale_inv": s})
    kept = most <= 1 and K % columns == 0
    return tensors, config, weight.astype(np.float32) * whole, f"e4m3_g{columns}" if kept else ""


def four_bits(nested: bool = False) -> Built:
    q = codes(4)
    absmax = random.random(N * K // 64).astype(np.float32)
    state: dict[str, Any] = {"shape": [N, K], "blocksize": 64, "quant_type": "nf4"}
    prefix = f"{NAME}.weight"
    tensors = {prefix: ((q.reshape(-1, 2)[:, 0] << 4) | q.reshape(-1, 2)[:, 1]).reshape(-1, 1)}
    tensors[f"{prefix}.quant_map"] = np.asarray(NF4, np.float32)
    tensors[f"{prefix}.absmax"] = absmax
    if nested:
        inner, table = random.integers(0, 256, absmax.size, dtype=np.uint8), random.random(256)
        outer = random.random(-(-absmax.size // 256)).astype(np.float32)
        table = table.astype(np.float32)
        absmax = table[inner] * np.repeat(outer, 256)[: absmax.size] + np.float32(0.25)
        tensors |= {f"{prefix}.absmax": inner, f"{prefix}.nested_quant_map": table}
        tensors[f"{prefix}.nested_absmax"] = outer
        state |= {"nested_blocksize": 256, "nested_offset": 0.25}
    text = json.dumps(state).encode()
    tensors[f"{prefix}.quant_state.bitsandbytes__nf4"] = np.frombuffer(text, np.uint8)
    floats = np.asarray(NF4, np.float32)[q] * np.repeat(absmax, 64).reshape(N, K)
    return tensors, {"quant_method": "bitsandbytes"}, floats, "nf4"


def int8_rows() -> Built:
    weight = random.integers(-127, 128, (N, K), dtype=np.int8)
    peaks = random.random(N).astype(np.float32)
    tensors = named({"weight": weight, "SCB": peaks})
    floats = weight.astype(np.float32) * peaks[:, None] / np.float32(127)
    return tensors, {"quant_method": "bitsandbytes"}, floats, ""


def static_fp8() -> Built:
    """Ministral 3 as published by Mistral: a scale per tensor, and one of activations."""
    weight, s = fp8(), np.full(1, 0.25, np.float32)
    tensors = {"weight": weight, "weight_scale_inv": s, "activation_scale": np.ones(1, np.float32)}
    config = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
    return named(tensors), config, weight.astype(np.float32) * s, "e4m3_row"


def mlx(bits: int = 4) -> Built:
    q, s = codes(bits), scales()
    biases = -scales()
    tensors = {"weight": packed(q, bits).view(np.uint32), "scales": s, "biases": biases}
    floats = q.astype(np.float32) * spread(s) + spread(biases)
    config = {"quant_method": "mlx", "group_size": G, "bits": bits}
    return named(tensors), config, floats, f"int{bits}m_g{G}"


def mxfp4() -> Built:
    q, exponents = codes(4), random.integers(110, 130, (N, K // 32), dtype=np.uint8)
    tensors = {"weight_packed": packed(q, 4).view(np.uint8), "weight_scale": exponents}
    floats = np.asarray(E2M1, np.float32)[q] * spread(2.0 ** (exponents.astype(np.float32) - 127))
    config = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    return named(tensors), config, floats, "mxfp4"


def fp4(of_nvidia: bool) -> Built:
    """NVFP4; the values of compressed-tensors, whose factor divides, are within a float32's ulp."""
    q, factor = codes(4), np.float32(2.0**-9 if of_nvidia else 3.0**5)
    small = random.integers(1, 126, (N, K // 16), dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    scale = small.astype(np.float32) * (factor if of_nvidia else np.float32(1) / factor)
    floats = np.asarray(E2M1, np.float32)[q] * np.repeat(scale, 16, axis=1)
    pairs = packed(q, 4).view(np.uint8)
    if of_nvidia:
        tensors = {"weight": pairs, "weight_scale": small, "weight_scale_2": np.array(factor)}
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
        return named(tensors | {"input_scale": np.array(factor)}), config, floats, "nvfp4"
    tensors = {"weight_packed": pairs, "weight_scale": small, "weight_global_scale": factor[None]}
    tensors["input_global_scale"] = np.ones(1, np.float32)
    config = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    return named(tensors), config, floats, "nvfp4"


def fp8_of_nvidia() -> Built:
    tensors, _, floats, scheme = static_fp8()
    renamed = {name.replace("_scale_inv", "_scale"): array for name, array in tensors.items()}
    return renamed, {"quant_method": "modelopt", "quant_algo": "FP8"}, floats, scheme


def fp8_blocks_of_vllm() -> Built:
    tensors, _, floats, scheme = fp8_blocks()
    renamed = {name.replace("_scale_inv", "_scale"): array for name, array in tensors.items()}
    group = {"weights": {"num_bits": 8, "strategy": "block", "block_structure": [32, 64]}}
    config = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    return renamed, {**config, "config_groups": {"group_0": group}}, floats, scheme


def named(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{NAME}.{part}": array for part, array in tensors.items()}


CASES: dict[str, Callable[[], Built]] = {
    "awq": awq,
    "awq-by-autoawq": awq_by_autoawq,
    "awq-tiny": lambda: awq(tiny=True),
    "gptq": gptq,
    "gptq-v2": lambda: gptq(v2=True),
    "gptq-by-gptqmodel": gptq_by_gptqmodel,
    "gptq-3-bits": lambda: gptq(3),
    "gptq-8-bits": lambda: gptq(8),
    "gptq-desc-act": lambda: gptq(order=True),
    "gptq-sym-7": lambda: gptq_symmetric(7),
    "gptq-sym-8": lambda: gptq_symmetric(8),
    "gptq-sym-by-default": lambda: gptq_symmetric(8, None),
    "gptq-sym-v2": lambda: gptq_symmetric(8, v2=True),
    "gptq-sym-v2-7": lambda: gptq_symmetric(7, v2=True),
    "gptq-asymmetric-8": lambda: gptq_symmetric(8, False),
    "gptq-dynamic": lambda: gptq_mixed("dynamic"),
    "gptq-extra-config": lambda: gptq_mixed("extra_config"),
    "w4a16-actorder": w4a16_ordered,
    "w4a16-unset-order": lambda: w4a16_ordered(True),
    "w2a16": w2a16,
    "w4a16": w4a16,
    "w4a16-asymmetric": lambda: w4a16(True),
    "w4a16-tiny": lambda: w4a16(tiny=True),
    "w4a16-tiny-asymmetric": lambda: w4a16(True, True),
    "w8a8": w8a8,
    "fp8-rows": fp8_rows,
    "fp8-groups": fp8_groups,
    "fp8-blocks": fp8_blocks,
    "fp8-blocks-beyond": lambda: fp8_blocks(48),
    "fp8-blocks-large": lambda: fp8_blocks(most=1.5),
    "fp8-static": static_fp8,
    "nf4": four_bits,
    "nf4-nested": lambda: four_bits(True),
    "int8-rows": int8_rows,
    "mlx": mlx,
    "mlx-6-bits": lambda: mlx(6),
    "mxfp4": mxfp4,
    "nvfp4": lambda: fp4(False),
    "modelopt-nvfp4": lambda: fp4(True),
    "modelopt-fp8": fp8_of_nvidia,
    "fp8-blocks-vllm": fp8_blocks_of_vllm,
}


def opened(folder: Path, tensors: dict[str, np.ndarray], config: dict[str, Any]) -> Any:
    beside = {"model.norm.weight": np.ones(K, np.float32)}
    save_file(tensors | beside, folder / "model.safetensors")
    return packed_tensors(TensorFolder.open(folder), {"quantization_config": config})


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_is_what_the_format_says(case: str, tmp_path: Path) -> None:
    tensors, config, floats, scheme = CASES[case]()
    found, name = opened(tmp_path, tensors, config), f"{NAME}.weight"
    assert found.shapes == {"model.norm.weight": (K,), name: (N, K)}
    np.testing.assert_array_equal(found.read(name), floats)
    assert found.schemes.get(name, "") == scheme
    if scheme:
        matrix = found.quantized(name)
        matrix.check(name)
        np.testing.assert_array_equal(dequantize(matrix), floats)
        assert not list(found.notes)
    else:
        assert found.nearest[name] in " ".join(found.notes)


def test_experts_of_gpt_oss(tmp_path: Path) -> None:
    q = random.integers(0, 16, (2, N, K), dtype=np.uint8)
    exponents = random.integers(120, 130, (2, N, K // 32), dtype=np.uint8)
    blocks = (q[..., ::2] | (q[..., 1::2] << 4)).reshape(2, N, K // 32, 16)
    tensors = {"e.gate_up_proj_blocks": blocks, "e.gate_up_proj_scales": exponents}
    found = opened(tmp_path, tensors, {"quant_method": "mxfp4"})
    expected = np.asarray(E2M1, np.float32)[q[1]] * spread(2.0 ** (exponents[1] - 127.0))
    np.testing.assert_array_equal(found.read("e.gate_up_proj.1"), expected)


@pytest.mark.parametrize("case", CASES)
def test_parts_that_do_not_fit_are_refused_by_name(case: str, tmp_path: Path) -> None:
    """Each part in turn is missing, halved, or of another type."""
    tensors, config, _, _ = CASES[case]()
    unneeded = ["g_idx", "weight_zero_point", "input_scale", "activation_scale"]
    unneeded += ["input_global_scale"]
    any_shape = ("nf4", "fp8-static", "modelopt-fp8")
    unneeded += [".weight"] if case.startswith(any_shape) else []
    for part, array in tensors.items():
        array = np.atleast_1d(array)
        changes = [array[: len(array) // 2], array.astype(np.float64), array[None, None]]
        for i, change in enumerate([None, *changes]):
            others = {n: a for n, a in tensors.items() if n != part}
            broken = others if change is None else others | {part: np.ascontiguousarray(change)}
            try:
                folder = tmp_path / f"{part}-{i}"
                folder.mkdir()
                found = opened(folder, broken, config)
                if f"{NAME}.weight" in found.packed:
                    found.read(f"{NAME}.weight")
            except (CheckpointError, UnsupportedError) as error:
                assert NAME in str(error), error
            else:
                alone = f"{NAME}.weight" not in found.packed
                assert alone or any(u in part for u in unneeded), (part, i)


def test_another_method_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'eetq'.*awq, gptq"):
        check_method("model", {"quantization_config": {"quant_method": "eetq"}})
    known = {"awq", "gptq", "compressed-tensors", "bitsandbytes", "fp8", "mxfp4", "modelopt"}
    assert set(METHODS) >= known
