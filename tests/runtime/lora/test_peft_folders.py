"""PEFT folders: parsed configurations and matrices, and the error of each invalid folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcc.device.reference.lora import slot_arrays
from mlcc.errors import ArtifactError, MlccError, UnsupportedError
from mlcc.lora.fit import fitted
from mlcc.lora.peft import read_folder
from mlcc.lora.peft_config import read_config
from mlcc.lora.targets import Targets, pattern_of
from tests.runtime.lora.folders import config_of, write_config
from tests.runtime.lora.rooms import ROOM, SIZES, save_small

Q = "base_model.model.model.layers.0.self_attn.q_proj"


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The folder with other tensors."""
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    return folder


def test_where_matrices_go(tmp_path: Path) -> None:
    """q is a third of its site, A's rows on top of k's and v's, B's columns before theirs."""
    folder = save_small(tmp_path / "a", rank=2)
    tensors = load_file(folder / "adapter_model.safetensors")
    adapter = fitted(read_folder(folder), ROOM)
    assert adapter.rank == 2
    a, b, *_ = slot_arrays(ROOM, adapter.matrices)
    assert a.shape == (12, 8)
    assert b.shape == (4, 16)
    np.testing.assert_array_equal(a[:2], tensors[f"{Q}.lora_A.weight"])
    np.testing.assert_array_equal(b[:2, :8], 2 * tensors[f"{Q}.lora_B.weight"].T)
    assert not a[2:].any()
    assert not b[2:].any()
    assert not b[:, 8:].any()


@pytest.mark.parametrize(
    ("more", "scale"),
    [({}, 2.0), ({"use_rslora": True}, 8 / 2), ({"alpha_pattern": {"q_proj": 6}}, 1.5)],
)
def test_scales(tmp_path: Path, more: dict[str, Any], scale: float) -> None:
    write_config(tmp_path, config_of(4, 8, ["q_proj"], **more))
    assert read_config(tmp_path).scale_of("model.layers.0.self_attn.q_proj") == scale


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        (Targets(("q_proj", "layers.1.mlp.down_proj")), {"0.q", "1.q", "1.down"}),
        (Targets(r".*\.1\..*(q|k)_proj"), {"1.q", "1.k"}),
        (Targets("all-linear"), {f"{i}.{x}" for i in "01" for x in ("q", "k", "v", "down")}),
        (
            Targets("all-linear", ("q_proj", "down_proj", "0.self_attn.k_proj")),
            {"0.v", "1.k", "1.v"},
        ),
        (Targets(("q_proj",), (), (1,)), {"1.q"}),
        (Targets(("q_proj",), (), (0,), ("layers",)), {"0.q"}),
        (Targets(("q_proj",), (), (0,), ("blocks",)), set()),
    ],
)
def test_target_modules_in_pefts_ways(targets: Targets, named: set[str]) -> None:
    found = {m for m in SIZES if targets.match(m)}
    assert {f"{m.split('.')[2]}.{m.split('.')[-1].removesuffix('_proj')}" for m in found} == named


@pytest.mark.parametrize("pattern", [r"(.*)+x", r"(a|b){2,}", r".*.*.*.*.*q", "a" * 3000, r"(q"])
def test_a_pattern_that_may_not_end_is_refused(pattern: str) -> None:
    with pytest.raises(ArtifactError, match="target_modules"):
        pattern_of("target_modules", pattern)


UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?(?:q_proj"
    r"|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\."
    r"(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)\.(?:(?:q_proj|v_proj)))"
)
"""What unsloth's FastModel writes."""


@pytest.mark.parametrize("pattern", [UNSLOTH, r"(.*)+x", "a?" * 5000 + "a" * 5000])
def test_an_expression_that_is_not_matched(tmp_path: Path, pattern: str) -> None:
    """PEFT and vLLM take the modules from the tensors' names; so the matrices decide here too."""
    folder = save_small(tmp_path / "a", rank=2)
    plain = fitted(read_folder(folder), ROOM)
    path = folder / "adapter_config.json"
    for field in ("target_modules", "exclude_modules"):
        config = json.loads(path.read_text()) | {field: pattern}
        path.write_text(json.dumps(config))
        assert fitted(read_folder(folder), ROOM) == plain


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": 4096}, "r is 4096"),
        ({"r": True}, "r is True"),
        ({"lora_alpha": "x"}, "lora_alpha is 'x'"),
        ({"lora_alpha": float("inf")}, "lora_alpha"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"use_dora": True}, "use_dora asks for DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save asks for whole modules"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the base model"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'"),
        ({"target_modules": 3}, "target_modules is 3"),
        ({"target_modules": ["q_proj"]}, "has matrices of .*down_proj, which its target_modules"),
        ({"target_modules": "all-linear"}, "has no matrices of .*k_proj"),
        ({"r": 3}, "not of the rank 3"),
        ({"layers_to_transform": "x"}, "layers_to_transform"),
    ],
)
def test_a_configuration_that_is_not_obeyed(
    tmp_path: Path, config: dict[str, Any], why: str
) -> None:
    folder = save_small(tmp_path / "a")
    write_config(folder, config_of(2, 4, ["q_proj", "down_proj"]) | config)
    with pytest.raises((ArtifactError, UnsupportedError), match=why):
        fitted(read_folder(folder), ROOM)


def _drop(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda tensors: tensors.pop(name)


def _put(name: str, *shape: int, dtype: str = "float32") -> Callable[[dict[str, Any]], Any]:
    return lambda tensors: tensors.update({name: np.zeros(shape, dtype)})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_drop(f"{Q}.lora_B.weight"), "has no lora_B of model.layers.0.self_attn.q_proj"),
        (_put(f"{Q}.lora_A.weight", 2, 9), "is for another base.*takes 9 and gives 8, this"),
        (_put(f"{Q}.lora_B.weight", 7, 2), "is for another base.*takes 8 and gives 7"),
        (_put(f"{Q}.lora_A.weight", 2, 8, 1), "not of the rank"),
        (_put(f"{Q}.lora_A.weight", 2, 8, dtype="int8"), "is int8; float32, float16"),
        (_put(f"{Q}.lora_magnitude_vector", 8), "which is no matrix of a LoRA"),
        (_put("base_model.model.lm_head.lora_embedding_A", 2, 8), "is no matrix of a LoRA"),
        (lambda t: t.clear(), "has no matrices"),
    ],
)
def test_matrices_that_do_not_fit(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], why: str
) -> None:
    folder = changed(save_small(tmp_path / "a"), change)
    with pytest.raises(MlccError, match=why):
        fitted(read_folder(folder), ROOM)


def test_modules_that_the_model_does_not_have(tmp_path: Path) -> None:
    def add(tensors: dict[str, Any]) -> None:
        for side, shape in (("A", (2, 8)), ("B", (96, 2))):
            tensors[f"base_model.model.lm_head.lora_{side}.weight"] = np.zeros(shape, np.float32)

    folder = changed(save_small(tmp_path / "a"), add)
    with pytest.raises(ArtifactError, match=r"adapts lm_head, .*trained on 'mlcc/demo'"):
        fitted(read_folder(folder), ROOM)


def test_a_rank_above_the_room(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"has rank 5, .* up to 4; .*--adapter-rank 5"):
        fitted(read_folder(save_small(tmp_path / "a", rank=5)), ROOM)


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no folder"):
        read_folder(tmp_path / "absent")
    with pytest.raises(ArtifactError, match=r"has no adapter_config\.json"):
        read_folder(tmp_path)
    folder = save_small(tmp_path / "a")
    weights = folder / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4])
    with pytest.raises(ArtifactError, match="truncated"):
        read_folder(folder)
    weights.unlink()
    with pytest.raises(ArtifactError, match=r"has no adapter_model\.safetensors"):
        read_folder(folder)
    (folder / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(UnsupportedError, match=r"adapter_model\.bin, which is pickled"):
        read_folder(folder)
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(ArtifactError, match="is not JSON"):
        read_folder(folder)
    (folder / "adapter_config.json").write_text(json.dumps([1]))
    with pytest.raises(ArtifactError, match="is no object"):
        read_folder(folder)


def test_a_file_that_is_replaced_meanwhile(tmp_path: Path) -> None:
    folder = read_folder(save_small(tmp_path / "a", seed=1))
    (tmp_path / "a" / "adapter_model.safetensors").unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        fitted(folder, ROOM)
    save_small(tmp_path / "a", seed=2, rank=1)  # other shapes than those that were checked
    with pytest.raises(ArtifactError, match="was replaced while it was read"):
        fitted(folder, ROOM)


def test_bfloat16_is_read(tmp_path: Path) -> None:
    """numpy has none: its bits are the upper half of a float32's."""
    folder = save_small(tmp_path / "a")
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    halves = {n: (t.view(np.uint32) >> 16).astype(np.uint16) for n, t in tensors.items()}
    save_file(halves, path)
    path.write_bytes(path.read_bytes().replace(b'"U16"', b'"BF16"', 0))
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size].replace(b'"U16"', b'"BF16"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + size :])
    found = slot_arrays(ROOM, fitted(read_folder(folder), ROOM).matrices)[0][:2]
    wanted = tensors[f"{Q}.lora_A.weight"]
    np.testing.assert_allclose(found, wanted, rtol=2**-7)
    assert not np.array_equal(found, wanted)
