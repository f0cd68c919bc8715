"""The audio tower of Gemma 4 (Gemma Team, 2026): a Conformer (Gulati et al., 2020) in which a row
reads the rows before it alone, as in Universal Speech Models (Zhang et al., 2023), and a projector
to the language model's width.

Two convolutions of 3 x 3 with a stride of 2 make a row of four frames. The host writes, for a row,
what the three outputs over time of the first one read that the second reads
(`mlcc.multimodal.audio.usm`): of each, nine numbers for each frequency, and zeros for frequencies
beside the spectrum. So the first convolution is a matrix over nine numbers, and the second one a
matrix for each of the three over three frequencies. LayerNorm behind each has no bias: it becomes
an RMS norm, as the mean over channels is taken from the weight (`towers/conformer_tensors.py`).

Clamping to 10**10 between the parts of a layer, which guards training, is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.audio.whisper import FrameConvolution
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.fields import HfConfig, positive, require
from mlcc_compiler.models.layers import Linear, RMSNorm
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision.gemma4 import ClippedLinear

TAPS = 3
"""Outputs over time of the first convolution that the second reads."""
PATCH = 16
"""Numbers that an output of the first convolution reads, nine, and zeros behind them."""
EPS = 1e-6
"""Of the norms that no config names."""
DEFAULTS: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "hidden_act": "silu",
    "subsampling_conv_channels": [128, 32],
    "conv_kernel_size": 5,
    "residual_weight": 0.5,
    "attention_chunk_size": 12,
    "attention_context_left": 13,
    "attention_context_right": 0,
    "attention_logit_cap": 50.0,
    "use_clipped_linears": True,
    "rms_norm_eps": 1e-6,
    "output_proj_dims": 1536,
}


class FeedForward(nn.Module):
    """Half of a layer's MLP, between norms."""

    def __init__(self, config: DecoderConfig, hf: HfConfig, linear: type[Linear]) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.ffw_layer_1, self.ffw_layer_2 = linear(hidden, inner), linear(inner, hidden)
        self.pre_layer_norm, self.post_layer_norm = RMSNorm(hidden, EPS), RMSNorm(hidden, EPS)
        self.activation, self.share = config.activation, positive(hf, "residual_weight")

    def forward(self, x: Tensor) -> Tensor:
        inner = ops.activated(self.ffw_layer_1(self.pre_layer_norm(x)), self.activation)
        return x + self.post_layer_norm(self.ffw_layer_2(inner)) * self.share


class Attention(nn.Module):
    """Attention to the last rows by their distance."""

    def __init__(self, config: DecoderConfig, hf: HfConfig, linear: type[Linear]) -> None:
        hidden = config.hidden_size
        self.q_proj, self.k_proj = linear(hidden, hidden), linear(hidden, hidden)
        self.v_proj, self.post = linear(hidden, hidden), linear(hidden, hidden)
        self.query_scale = nn.Parameter((hidden,), "float32")
        self.relative_keys = nn.Parameter((window_of(hf), hidden), "float32")
        self.heads, self.cap = config.num_heads, positive(hf, "attention_logit_cap")

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q = ops.scale_columns(self.q_proj(x), self.query_scale)
        k, v = self.k_proj(x), self.v_proj(x)
        found = ops.relative_attention(q, k, v, self.relative_keys, positions, self.heads, self.cap)
        return self.post(found)


class DepthwiseConv(nn.Module):
    """A convolution of each channel over the last rows."""

    def __init__(self, taps: int, channels: int) -> None:
        self.weight = nn.Parameter((taps, channels), "float32")

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return ops.depthwise_conv(x, self.weight, positions)


class LightConv(nn.Module):
    """A gated convolution over the last rows."""

    def __init__(self, config: DecoderConfig, hf: HfConfig, linear: type[Linear]) -> None:
        hidden = config.hidden_size
        self.linear_start, self.linear_end = linear(hidden, 2 * hidden), linear(hidden, hidden)
        self.depthwise_conv1d = DepthwiseConv(require(hf, "conv_kernel_size"), hidden)
        self.pre_layer_norm = RMSNorm(hidden, config.norm_eps)
        self.conv_norm = RMSNorm(hidden, config.norm_eps)
        self.activation = config.activation

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        both, hidden = self.linear_start(self.pre_layer_norm(x)), x.shape[1]
        up, gate = (ops.take_parts(both, 1, [(at, hidden)]) for at in (0, hidden))
        inner = self.depthwise_conv1d(ops.gated(gate, up, "sigmoid"), positions)
        return x + self.linear_end(ops.activated(self.conv_norm(inner), self.activation))


class Layer(nn.Module):
    """Half an MLP, attention, convolution, half an MLP, and a norm."""

    def __init__(self, config: DecoderConfig, hf: HfConfig, linear: type[Linear]) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(config.hidden_size, EPS)

        self.feed_forward1 = FeedForward(config, hf, linear)
        self.feed_forward2 = FeedForward(config, hf, linear)
        self.self_attn, self.lconv1d = (kind(config, hf, linear) for kind in (Attention, LightConv))
        self.norm_pre_attn, self.norm_post_attn, self.norm_out = norm(), norm(), norm()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = self.feed_forward1(x)
        x = x + self.norm_post_attn(self.self_attn(self.norm_pre_attn(x), positions))
        return self.norm_out(self.feed_forward2(self.lconv1d(x, positions)))


class Convolution(nn.Module):
    """A matrix that stands for a convolution, or for one of the three rows of its kernel, and the
    norm of its outputs."""

    def __init__(self, channels: int, eps: float) -> None:
        self.norm: nn.Module = RMSNorm(channels, eps)
        self.least, self.most = np.zeros(1, np.float32), np.full(1, 3e38, np.float32)

    def normed(self, x: Tensor, rows: Any, places: int) -> Tensor:
        """Outputs a[rows * places, channels], normalised and at least 0 -> a[rows, places *
        channels]."""
        channels = x.shape[1]
        x = self.norm(nn.op.reshape(x, (rows, places, channels)))
        return self.above_zero(nn.op.reshape(x, (rows, places * channels)))

    def above_zero(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        bounds = (nn.Tensor(_expr=relax.const(each)) for each in (self.least, self.most))
        return ops.clip(x, *bounds)


class First(Convolution):
    """The first convolution."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__(channels, eps)
        self.conv = FrameConvolution(PATCH, channels)


class Second(Convolution):
    """The second convolution; `taps`: its kernel's rows over time."""

    def __init__(self, inputs: int, channels: int, eps: float) -> None:
        super().__init__(channels, eps)
        self.taps = nn.ModuleList([FrameConvolution(3 * inputs, channels) for _ in range(TAPS)])


class Subsampling(nn.Module):
    """Rows of the host's numbers -> a[n, hidden]."""

    def __init__(self, config: DecoderConfig, hf: HfConfig) -> None:
        self.wide, narrow = hf["subsampling_conv_channels"]
        self.places = require(hf, "num_mel_bins") // 2 + 2
        """Frequencies of the first convolution's output, one beside each end."""
        self.layer0 = First(self.wide, config.norm_eps)
        self.layer1 = Second(self.wide, narrow, config.norm_eps)
        self.input_proj_linear = Linear(self.outputs * narrow, config.hidden_size)

    @property
    def outputs(self) -> int:
        """Frequencies of the second convolution's output: half of the first one's."""
        return self.places // 2 - 1

    def forward(self, rows: Tensor) -> Tensor:
        size, found = self.places * PATCH, list[Tensor]()
        for tap, second in enumerate(self.layer1.taps):
            part = ops.take_parts(rows, 1, [(tap * size, size)])
            found.append(second(self._tap(part)))
        x = self.layer1.normed(found[0] + found[1] + found[2], rows.shape[0], self.outputs)
        return self.input_proj_linear(x)

    def _tap(self, part: Tensor) -> Tensor:
        """What the second convolution reads of one output over time of the first: for each of its
        own outputs three neighbouring frequencies. part a[n, places * PATCH]."""
        n = part.shape[0]
        patches = nn.op.reshape(part, (n * self.places, PATCH))
        return self.neighbours(self.layer0.normed(self.layer0.conv(patches), n, self.places))

    def neighbours(self, x: Tensor) -> Tensor:
        """One output over time of the first convolution, a[n, places * wide] -> for each output of
        the second one three neighbouring frequencies, a[n * outputs, 3 * wide]."""
        n, wide, outputs, pairs = x.shape[0], self.wide, self.outputs, self.places // 2
        even, odd = (ops.take_parts(x, pairs, [(at, wide)]) for at in (0, wide))
        read = [(even, 0), (odd, 0), (even, wide)]
        parts = [ops.take_parts(of, 1, [(at, outputs * wide)]) for of, at in read]
        return ops.side_by_side([nn.op.reshape(each, (n * outputs, wide)) for each in parts])


class UnweightedNorm(nn.Module):
    """An RMS norm without a weight."""

    def __init__(self, width: int, eps: float) -> None:
        self.ones, self.eps = np.ones(width, np.float32), eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, nn.Tensor(_expr=relax.const(self.ones)), self.eps, 0.0)


class Projector(nn.Module):
    """HF calls it `embed_audio`: a norm without a weight, and a matrix."""

    def __init__(self, inner: int, width: int, eps: float) -> None:
        self.norm = UnweightedNorm(inner, eps)
        self.embedding_projection = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding_projection(self.norm(x))


class Model(Encoder):
    """Gemma4AudioModel and Gemma4MultimodalEmbedder.

    token_ids i32[n] name rows of the host's numbers, positions i32[n], logit_rows i32[r] ->
    f32[r, width], rows of the prompt.
    """

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head)
        linear = ClippedLinear if hf["use_clipped_linears"] else Linear
        inner, self.text_width = require(hf, "output_proj_dims"), require(hf, "text_hidden_size")
        self.subsample_conv_projection = Subsampling(config, hf)
        self.layers = nn.ModuleList([Layer(config, hf, linear) for _ in range(config.num_layers)])
        self.output_proj = Linear(config.hidden_size, inner, True)
        self.embed_audio = Projector(inner, self.text_width, config.norm_eps)

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        x = ops.take_rows(self.states(token_ids, positions), logit_rows)
        return self.embed_audio(self.output_proj(x))

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        width = TAPS * self.subsample_conv_projection.places * PATCH
        rows = ops.inputs_embeds(token_ids, None, width, self.config.vocab_size)
        x = self.subsample_conv_projection(rows)
        for layer in self.layers:
            x = layer(x, positions)
        return x

    @property
    def width(self) -> int:
        """Hidden size of the language model."""
        return self.text_width


def window_of(hf: HfConfig) -> int:
    """Rows to which a row attends, itself included."""
    return require(hf, "attention_context_left") - 1


def max_context(hf: HfConfig) -> int:
    """Rows of the longest sound."""
    return require(hf, "max_rows")


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """audio_config of a Gemma4ForConditionalGeneration, with `num_mel_bins`, `max_rows` and
    `text_hidden_size`."""
    inner = 4 * require(hf, "hidden_size")
    known = {**hf, "layer_norm_eps": positive(hf, "rms_norm_eps"), "intermediate_size": inner}
    return replace(encoder_fields(known, "gemma4_audio", max_context(hf)), ignored=())
