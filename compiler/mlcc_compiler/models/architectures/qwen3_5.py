"""Qwen3.5, dense, its text (Qwen Team, 2026): Qwen3-Next with an MLP in each layer, and a separate
matrix for each of the delta rule's inputs. Its multi-token-prediction layer drafts with `--mtp`.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor
from mlcc_compiler.models.architectures import qwen3_next
from mlcc_compiler.models.config import DECODER_DEFAULTS, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.layers import Linear

DEFAULTS = DECODER_DEFAULTS | {
    "vocab_size": 248320,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
"""Sizes too: a text_config inside a multimodal config.json is written without its defaults."""


MTP = qwen3_next.MTP


class DeltaNet(qwen3_next.DeltaNet):
    """The gated delta rule with four projections."""

    def _projections(self, hidden: int) -> None:
        shape = self.delta
        self.in_proj_qkv = Linear(hidden, shape.channels)
        self.in_proj_z = Linear(hidden, shape.v_heads * shape.v_dim)
        self.in_proj_b, self.in_proj_a = (Linear(hidden, shape.v_heads) for _ in range(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x [n, hidden] -> input of the convolution, gate, b and a."""
        return self.in_proj_qkv(x), self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)


class Layer(qwen3_next.Layer):
    """Qwen3-Next's layer, with these projections."""

    delta_net = DeltaNet


def read_config(hf: HfConfig, context: int) -> qwen3_next.Config:
    """config.json (or its `text_config`) of a Qwen3_5ForCausalLM."""
    fields = common_fields(hf, "qwen3_5")
    layers = fields["num_layers"]
    bias = bool(hf.get("attention_bias", False))
    return qwen3_next.Config(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        norm_offset=1.0,
        ignored=(r"^mtp\.", r"^model\.visual\."),
        delta=qwen3_next.delta_of(hf),
        taps=require(hf, "linear_conv_kernel_dim"),
        linear=qwen3_next.linear_layers(hf, layers),
        sparse=(False,) * layers,
        experts=None,
    )
