"""Qwen3 dense (Yang et al., 2025): an RMS norm on each head's queries and keys. Qwen3-VL's language
model too, to whose first layers' results further features of images are added (DeepStack; Meng et
al., 2024).
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures import qwen2
from mlcc_compiler.models.causal_lm import Decoder
from mlcc_compiler.models.config import DecoderConfig, Mtp, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import PreNormLayer

Layer, MTP = PreNormLayer, Mtp(normed=True)


class Stack(Decoder):
    """Qwen3Model, and Qwen3VLTextModel."""

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        config, x = self.config, self.embed(token_ids)
        (table,) = self.rope_tables(positions)
        parts = 1 + config.deepstack
        for number, layer in enumerate(self.layers, 1):
            self.note_input(number - 1, x)
            x = layer(x, table)
            if number < parts:
                x = ops.inputs_embeds(
                    token_ids, x, config.hidden_size, config.vocab_size, number, parts, added=True
                )
        return x


DEFAULTS = qwen2.DEFAULTS | {"head_dim": 128}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Qwen3ForCausalLM."""
    fields = common_fields(hf, "qwen3") | {"windows": qwen2.qwen_windows(hf)}
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )
