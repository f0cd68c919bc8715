"""Mamba 2 (Dao and Gu, 2024), as in Mamba-Codestral: scans only, without positions."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.config import DecoderConfig, activation
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import hidden_norm
from mlcc_compiler.models.mamba import Mamba, Mixer, scan_of, taps_of

DEFAULTS = {
    "num_heads": 128,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "expand": 2,
    "hidden_act": "silu",
    "layer_norm_epsilon": 1e-5,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_limit": (0.0, inf),
    "tie_word_embeddings": False,
    "max_position_embeddings": 1 << 20,
}
"""Nothing depends on positions: the last only bounds the context of a compile."""


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder all of whose layers scan."""

    mamba: Mamba


class Layer(nn.Module):
    """x + mixer(norm(x))."""

    def __init__(self, config: Config, layer: int) -> None:
        self.norm = hidden_norm(config)
        self.mixer = Mixer(config.hidden_size, config.mamba, layer)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return x + self.mixer(self.norm(x))


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Mamba2ForCausalLM."""
    scan = scan_of(hf, "num_heads", "head_dim", "n_groups", "state_size")
    hidden, layers = require(hf, "hidden_size"), require(hf, "num_hidden_layers")
    if scan.inner != hidden * require(hf, "expand"):
        raise refuse("expand", f"what makes {hidden} the {scan.inner} of all heads", hf["expand"])
    eps = positive(hf, "layer_norm_epsilon")
    return Config(
        architecture="mamba2",
        vocab_size=require(hf, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=scan.inner,
        num_layers=layers,
        num_heads=scan.heads,
        num_kv_heads=scan.groups,
        head_dim=scan.head_dim,
        norm_eps=eps,
        activation=activation(hf),
        max_position=require(hf, "max_position_embeddings"),
        tie_embeddings=bool(hf["tie_word_embeddings"]),
        attention_scale=1.0,
        windows=(None,) * layers,
        ropes=(),
        rope_of_layer=(None,) * layers,
        mamba=Mamba(
            scan=scan,
            taps=taps_of(hf, "conv_kernel"),
            activation=activation(hf),
            bias=bool(hf["use_bias"]),
            output_bias=bool(hf["use_bias"]),
            conv_bias=bool(hf["use_conv_bias"]),
            norm_groups=scan.groups,
            norm_eps=eps,
        ),
    )
