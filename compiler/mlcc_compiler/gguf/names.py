"""The name map of GGUF: which tensor of a file is which of the model, by architecture.

A row is a family's names below `blk.N.`, and what llama.cpp's converter did to the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mlcc.errors import CheckpointError

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA = _LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PHI3 = _LAYER | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_EXPERTS = _LAYER | {"ffn_gate_inp": "mlp.gate"}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_OF_EXPERTS = {
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}

_MOST_EXPERTS = 4096
"""Of a layer."""

FREQUENCIES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that are numbers of the config: `config.py` reads them."""
_MADE_BY_CONVERTERS = re.compile(r"blk\.\d+\.(attn_rot_embd|rope_freqs|rope_factors_\w+)\.weight")
"""Of old files: copies of what the config says."""


@dataclass(frozen=True)
class Family:
    """How an architecture of llama.cpp names and changes what Hugging Face has."""

    layer: Mapping[str, str]
    norm_offset: float = 0.0
    """What the converter added to every norm's weights."""
    rotary: bool = False
    """Whether rows of q and k are in the order of pairs (`tensors.rotary_rows`)."""


FAMILIES = {
    "llama": Family(_LAYER, rotary=True),
    "qwen2": Family(_LAYER),
    "qwen3": Family(_LAYER),
    "qwen3moe": Family(_EXPERTS),
    "gemma2": Family(_GEMMA, norm_offset=1.0),
    "gemma3": Family(_GEMMA, norm_offset=1.0),
    "phi3": Family(_PHI3),
}
"""By `general.architecture`."""


@dataclass(frozen=True)
class Place:
    """Where one of the model's tensors is."""

    name: str
    """The tensor of the file."""
    expert: int | None = None
    """Which of the matrices that it holds; None = it holds one."""
    rotary_heads: int = 0
    """Heads whose rows are in the order of pairs; 0 = rows are in order."""
    offset: float = 0.0
    """What was added to the values."""


def places(
    architecture: str, names: Iterable[str], experts: Callable[[str], int], heads: Mapping[str, int]
) -> dict[str, Place]:
    """Model's name -> place. A tensor that no map knows keeps its name, to be refused by it.

    experts: how many matrices a tensor holds. heads: of "attn_q" and "attn_k". Raises
    CheckpointError.
    """
    family, found = FAMILIES[architecture], dict[str, Place]()

    def put(target: str, place: Place) -> None:
        if target in found:
            raise CheckpointError(
                f"the GGUF file's tensors {found[target].name!r} and {place.name!r} are both the "
                f"model's {target!r}; fetch it again"
            )
        found[target] = place

    for name in names:
        if name in FREQUENCIES or _MADE_BY_CONVERTERS.fullmatch(name):
            continue
        stem, _, kind = name.rpartition(".")
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        if block is None:
            place = Place(name, offset=family.norm_offset if stem == "output_norm" else 0.0)
            put(f"{_OUTER[stem]}.{kind}" if stem in _OUTER else name, place)
            continue
        layer, part = f"model.layers.{block[1]}", block[2]
        if part in _OF_EXPERTS and "ffn_gate_inp" in family.layer:
            if (count := experts(name)) > _MOST_EXPERTS:
                raise CheckpointError(
                    f"the GGUF file's tensor {name!r} is of {count} experts, and at most "
                    f"{_MOST_EXPERTS} are read; fetch it again"
                )
            for i in range(count):
                put(f"{layer}.mlp.experts.{i}.{_OF_EXPERTS[part]}.{kind}", Place(name, i))
        elif part in family.layer:
            rotary = heads.get(part, 0) if family.rotary else 0
            offset = family.norm_offset if part.endswith("_norm") else 0.0
            put(f"{layer}.{family.layer[part]}.{kind}", Place(name, None, rotary, offset))
        else:
            put(name, Place(name))
    return found
