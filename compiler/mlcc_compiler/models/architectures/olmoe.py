"""OLMoE (Muennighoff et al., 2024): pre-norm layers whose MLPs are mixtures, with OLMo 2's norms of
all queries and all keys."""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.models.architectures import mixtral
from mlcc_compiler.models.architectures.mixtral import Config
from mlcc_compiler.models.architectures.olmo2 import NormedAttention
from mlcc_compiler.models.config import DECODER_DEFAULTS, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.moe import Experts, chosen_of, count_of

DEFAULTS = DECODER_DEFAULTS | {
    "attention_bias": False,
    "clip_qkv": None,
    "max_position_embeddings": 4096,
    "norm_topk_prob": False,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "rms_norm_eps": 1e-5,
}
ALIASES = {"num_local_experts": "num_experts"}
"""Other names of fields, which overrule them as in transformers."""


class Layer(mixtral.Layer):
    """Mixtral's layer with that attention."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.self_attn = NormedAttention(config, layer)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of an OlmoeForCausalLM. Raises UnsupportedError for clipped projections."""
    if hf["clip_qkv"] is not None:
        raise UnsupportedError(
            f"config.json: 'clip_qkv' {hf['clip_qkv']!r} is not supported; OLMoE runs here without "
            "it (null), as OLMoE-1B-7B was published"
        )
    fields = common_fields(hf, "olmoe")
    count, bias = count_of(hf, "num_experts"), bool(hf["attention_bias"])
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=fields["intermediate_size"],
            normalise=bool(hf["norm_topk_prob"]),
        ),
    )
