"""Nemotron-H and Nemotron Nano 2 (NVIDIA, 2025): each layer is one of a Mamba 2 mixer, attention
without positions, an MLP, or a mixture of plain MLPs (Nemotron 3), whose multi-token-prediction
layers, mostly attention and a mixture, draft with `--mtp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.architectures import glm4_moe
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    Mtp,
    activation,
    common_fields,
)
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import Attention, PlainMLP, hidden_norm
from mlcc_compiler.models.mamba import Mamba, Mixer, scan_of, taps_of
from mlcc_compiler.models.moe import Experts, MixtureOfExperts

if TYPE_CHECKING:
    from typing_extensions import Self

MTP = Mtp(normed=True)
DEFAULTS = {
    **DECODER_DEFAULTS,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "intermediate_size": 21504,
    "mlp_hidden_act": "relu2",
    "mlp_bias": False,
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "mamba_hidden_act": "silu",
    "n_groups": 8,
    "conv_kernel": 4,
    "time_step_min": 0.001,
    "use_conv_bias": True,
    "use_bias": False,
    "layer_norm_epsilon": 1e-5,
    "n_routed_experts": 8,
    "moe_intermediate_size": 7688,
    "moe_shared_expert_intermediate_size": 7688,
    "moe_latent_size": None,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
}
ALIASES = {
    "num_local_experts": "n_routed_experts",
    "layer_types": "layers_block_type",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_d_conv": "conv_kernel",
    "mamba_dt_min": "time_step_min",
    "mamba_n_groups": "n_groups",
}
"""Other names of fields, which overrule them as in transformers."""
del DEFAULTS["rms_norm_eps"]
_KINDS = {
    "M": "scan", "mamba": "scan", "linear_attention": "scan",
    "*": "attention", "attention": "attention", "full_attention": "attention",
    "-": "mlp", "mlp": "mlp",
    "E": "moe", "moe": "moe",
}  # fmt: skip
"""Kinds by the letters of `hybrid_override_pattern` and the words of `layers_block_type`."""


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder of layers of four `kinds`; `experts` is None if none is a mixture."""

    mamba: Mamba
    experts: Experts | None
    kinds: tuple[str, ...]
    mtp_kinds: tuple[str, ...]

    def with_mtp_layers(self) -> Self:
        """The layers of `mtp_kinds` too."""
        more = self.mtp_kinds
        return replace(self._longer(len(more)), kinds=(*self.kinds, *more))


class Layer(nn.Module):
    """x + mixer(norm(x)), for any kind of mixer."""

    def __init__(self, config: Config, layer: int) -> None:
        self.kind = config.kinds[layer]
        self.norm = hidden_norm(config)
        if self.kind == "scan":
            self.mixer: nn.Module = Mixer(config.hidden_size, config.mamba, layer)
        elif self.kind == "moe":
            assert config.experts is not None
            self.mixer = MixtureOfExperts(config, config.experts, "shared_experts")
        else:
            attends = self.kind == "attention"
            self.mixer = Attention(config, layer) if attends else PlainMLP(config)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        normed = self.norm(x)
        return x + (self.mixer(normed, None) if self.kind == "attention" else self.mixer(normed))


def complete(hf: HfConfig) -> HfConfig:
    """Adds `num_hidden_layers`, which transformers 5 omits: the length of the pattern."""
    return {**hf, "num_hidden_layers": len(_pattern(hf))}


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a NemotronHForCausalLM."""
    kinds, mtp_kinds = tuple(_kind(kind) for kind in _pattern(hf)), _mtp_kinds(hf)
    eps, act = hf["layer_norm_epsilon"], hf["mlp_hidden_act"]
    more = {"rms_norm_eps": eps, "hidden_act": act, "num_hidden_layers": len(kinds)}
    fields = common_fields({**hf, **more}, "nemotron_h")
    fields["rope_of_layer"] = (None,) * len(kinds)
    fields["tie_embeddings"] = False  # transformers ties nothing here, whatever the config says
    width = hf.get("attention_head_dim")
    if width not in (None, fields["head_dim"]):
        raise refuse("attention_head_dim", f"head_dim, {fields['head_dim']}", width)
    return Config(
        **fields,
        ropes=(),
        mlp_bias=bool(hf["mlp_bias"]),
        kinds=kinds,
        mtp_kinds=mtp_kinds,
        mamba=_mamba(hf, fields["norm_eps"]),
        experts=_experts(hf) if "moe" in (*kinds, *mtp_kinds) else None,
    )


def _experts(hf: HfConfig) -> Experts:
    """The mixture; the shared expert's width is given in total, whatever number is declared."""
    latent = hf["moe_latent_size"]
    return replace(
        glm4_moe.experts_of(hf),
        gated=False,
        latent=None if latent is None else require(hf, "moe_latent_size"),
        shared=require(hf, "moe_shared_expert_intermediate_size"),
    )


def _mamba(hf: HfConfig, eps: float) -> Mamba:
    """Time steps are at least `time_step_min`, whatever `time_step_limit` is: as in transformers'
    and NVIDIA's own code."""
    limited = {**hf, "time_step_limit": (hf["time_step_min"], float("inf"))}
    scan = scan_of(limited, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size")
    return Mamba(
        scan=scan,
        taps=taps_of(hf, "conv_kernel"),
        activation=activation({"hidden_act": hf["mamba_hidden_act"]}),
        bias=bool(hf["use_bias"]),
        output_bias=bool(hf["use_bias"]),
        conv_bias=bool(hf["use_conv_bias"]),
        norm_groups=scan.groups,
        norm_eps=eps,
    )


def _pattern(hf: HfConfig) -> Any:
    """The kind of each layer, from letters or words."""
    for key in ("layers_block_type", "layer_types", "hybrid_override_pattern"):
        if hf.get(key) is not None:
            pattern = hf[key]
            if not isinstance(pattern, (str, list)) or not pattern:
                raise refuse(key, "what each layer is", pattern)
            return pattern
    raise refuse("layers_block_type", "what each layer is", None)


def _mtp_kinds(hf: HfConfig) -> tuple[str, ...]:
    """The kinds of the layers of multi-token prediction, none of which may be a scan: drafts that
    are not accepted could not be taken out of its state."""
    if not hf.get("num_nextn_predict_layers"):
        return ()
    words, letters = hf.get("mtp_layers_block_type"), hf.get("mtp_hybrid_override_pattern")
    kinds = tuple(_kind(kind) for kind in (words or letters or "*E"))
    if "scan" in kinds:
        raise refuse("mtp_layers_block_type", "layers without a scan", words or letters)
    return kinds


def _kind(kind: Any) -> str:
    if not isinstance(kind, str) or kind not in _KINDS:
        raise refuse("layers_block_type", f"made of {', '.join(_KINDS)}", kind)
    return _KINDS[kind]
