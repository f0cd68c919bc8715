"""The encoder of Whisper (Radford et al., 2022), as a tower: a window of sound is a text, a row of
two neighbouring frames a token. Its output are the keys and values of the decoder's
cross-attention, of all layers side by side.

The first convolution has a stride of 1 and the second of 2, both of three taps, so a token reads
five frames. The host writes, for a token, the input of the three outputs of the first convolution
that the second reads (`mlcc.multimodal.audio.frames`): three times three frames, and a 1 for the
bias, which is a column of the weight. Beyond the window's ends all of it is 0, so that the first
convolution's output is 0 there.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.architectures.whisper import EPS, SelfAttention
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Encoder, Table
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.layers import LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead

TAPS = 3
ALIASES = {
    "d_model": "hidden_size",
    "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "activation_function": "hidden_act",
}
DEFAULTS: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "num_mel_bins": 80,
    "max_source_positions": 1500,
    "hidden_act": "gelu",
    "layer_norm_eps": EPS,
}


class FrameConvolution(nn.Module):
    """The first convolution as a matrix over three frames and a 1. Never quantized: it is small,
    and reads exact numbers."""

    def __init__(self, width: int, hidden: int) -> None:
        self.weight = nn.Parameter((hidden, width), "float32")

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, None, "f32")


class Layer(nn.Module):
    """Attention to the whole window, then the MLP, each behind a norm."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.self_attn = SelfAttention(config, layer)
        self.fc1, self.fc2 = Linear(hidden, inner, True), Linear(inner, hidden, True)
        self.self_attn_layer_norm = LayerNorm(hidden, EPS)
        self.final_layer_norm = LayerNorm(hidden, EPS)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        return x + self.fc2(ops.activated(self.fc1(self.final_layer_norm(x)), self.activation))


class CrossProjections(nn.Module):
    """Keys and values of one decoder layer."""

    def __init__(self, hidden: int) -> None:
        self.k_proj, self.v_proj = Linear(hidden, hidden), Linear(hidden, hidden, True)


class Convolutions(Encoder):
    """An encoder that begins with Whisper's two convolutions."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head)
        hidden = config.hidden_size
        self.slice = slice_width(require(hf, "num_mel_bins"))
        self.conv1 = FrameConvolution(self.slice, hidden)
        self.conv2 = Linear(TAPS * hidden, hidden, True)

    def convolved(self, token_ids: Tensor) -> Tensor:
        """token_ids i32[n] name rows of frames -> a[n, hidden]."""
        activation, size = self.config.activation, self.slice
        frames = ops.inputs_embeds(token_ids, None, TAPS * size, self.config.vocab_size)
        slices = [ops.take_parts(frames, 1, [(tap * size, size)]) for tap in range(TAPS)]
        x = ops.side_by_side([ops.activated(self.conv1(part), activation) for part in slices])
        return ops.activated(self.conv2(x), activation)


class Model(Convolutions):
    """WhisperEncoder, and k_proj and v_proj of each WhisperDecoderLayer's encoder_attn.

    token_ids i32[n] name rows of frames, positions i32[n], logit_rows i32[r] -> f32[r, width].
    """

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        hidden = config.hidden_size
        self.embed_positions = Table(config.max_position, hidden)
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])
        self.layer_norm = LayerNorm(hidden, EPS)
        self.cross = nn.ModuleList(
            [CrossProjections(hidden) for _ in range(require(hf, "decoder_layers"))]
        )

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        x = ops.take_rows(self.states(token_ids, positions), logit_rows)
        return ops.side_by_side(
            [project(x) for layer in self.cross for project in (layer.k_proj, layer.v_proj)]
        )

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        x = self.convolved(token_ids) + self.embed_positions(positions)
        for layer in self.layers:
            x = layer(x)
        return self.layer_norm(x)

    @property
    def width(self) -> int:
        """Keys and values of all layers."""
        return 2 * len(self.cross) * self.config.hidden_size


def slice_width(bins: int) -> int:
    """Numbers of three frames and a 1, in whole vectors."""
    return -(-(TAPS * bins + 1) // 16) * 16


def default_batch(hf: HfConfig) -> int:
    """Sequences at once whose keys and values fit into a gigabyte, at most 8."""
    rows, layers, width = (require(hf, name) for name in ("max_rows", "decoder_layers", "d_model"))
    return max(1, min(8, (1 << 30) // (rows * 2 * layers * width * 4)))


def max_context(hf: HfConfig) -> int:
    """Rows of a window."""
    return require(hf, "max_source_positions")


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a WhisperForConditionalGeneration, its encoder."""
    return encoder_fields(hf, "whisper_audio", max_context(hf))
