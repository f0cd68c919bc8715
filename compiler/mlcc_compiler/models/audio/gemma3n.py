"""The audio tower of Gemma 3n (Gemma Team, 2025): Gemma 4's Conformer, behind convolutions whose
outputs are normalised by all of the sound so far, and a projector to the language model's width.

The host writes, for a row, what the two outputs over time of the first convolution read that begin
there (`mlcc.multimodal.audio.gemma3n`); the second convolution reads the next row's first too. Two
rows of marks behind a sound ask for the embedding that fills a sound up, and for that of the token
behind it: what the projector reads of them is in the weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.audio import gemma4
from mlcc_compiler.models.audio.gemma4 import PATCH, Layer
from mlcc_compiler.models.audio.whisper import FrameConvolution
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.fields import HfConfig, positive, require
from mlcc_compiler.models.layers import Linear, RMSNorm
from mlcc_compiler.models.pooling import EncoderHead

TAPS = 2
"""Outputs over time of the first convolution in a row."""
THERE, FILL, LAST, REAL = 9, 10, 11, 12
"""Numbers of a patch behind the nine: 1 where the output is there; and of a row's first patch, 1
for a row of filling, the token behind the sound, and a row of the sound."""
MARKED = 2
"""Rows of marks behind a sound's."""
ALIASES = {
    "input_feat_size": "num_mel_bins",
    "conf_num_hidden_layers": "num_hidden_layers",
    "conf_num_attention_heads": "num_attention_heads",
    "conf_conv_kernel_size": "conv_kernel_size",
    "conf_residual_weight": "residual_weight",
    "conf_attention_logit_cap": "attention_logit_cap",
    "sscp_conv_channel_size": "subsampling_conv_channels",
}
DEFAULTS: dict[str, Any] = {
    "hidden_size": 1536,
    "input_feat_size": 128,
    "conf_num_hidden_layers": 12,
    "conf_num_attention_heads": 8,
    "conf_conv_kernel_size": 5,
    "conf_residual_weight": 0.5,
    "conf_attention_context_left": 13,
    "conf_attention_context_right": 0,
    "conf_attention_logit_cap": 50.0,
    "conf_reduction_factor": 4,
    "sscp_conv_channel_size": [128, 32],
    "sscp_conv_group_norm_eps": 1e-3,
    "sscp_conv_kernel_size": [[3, 3], [3, 3]],
    "sscp_conv_stride_size": [[2, 2], [2, 2]],
    "rms_norm_eps": 1e-6,
    "vocab_size": 128,
    "vocab_offset": 262272,
    "hidden_act": "silu",
    "use_clipped_linears": False,
}


class CumulativeNorm(nn.Module):
    """Of each group of outputs by all of the sound so far, and at least 0."""

    def __init__(self, channels: int, eps: float) -> None:
        self.weight, self.eps = nn.Parameter((channels,), "float32"), eps

    def forward(self, x: Tensor, present: Tensor, positions: Tensor, groups: int) -> Tensor:
        moments = ops.group_moments(x, present, groups)
        return ops.cumulative_norm(x, present, moments, self.weight, positions, self.eps)


class Subsampling(gemma4.Subsampling):
    """Rows of the host's numbers -> a[n, hidden]."""

    def __init__(self, config: DecoderConfig, hf: HfConfig) -> None:
        super().__init__(config, hf)
        _, narrow = hf["subsampling_conv_channels"]
        eps = positive(hf, "sscp_conv_group_norm_eps")
        self.layer0.norm = CumulativeNorm(self.wide, eps)
        self.layer1.norm = CumulativeNorm(narrow, eps)

    def subsampled(self, rows: Tensor, positions: Tensor) -> Tensor:
        """rows f32[n, TAPS * places * PATCH] -> a[n, hidden]."""
        n, places, outputs = rows.shape[0], self.places, self.outputs
        present = ops.take_parts(rows, TAPS * places, [(THERE, 1)])
        x = self.layer0.conv(nn.op.reshape(rows, (n * TAPS * places, PATCH)))
        x = nn.op.reshape(x, (n, TAPS * places * self.wide))
        x = self.layer0.above_zero(self.layer0.norm(x, present, positions, TAPS))
        size = places * self.wide
        first, second = (self.neighbours(ops.take_parts(x, 1, [(at, size)])) for at in (0, size))
        own, middle, behind = self.layer1.taps
        found, after = own(first) + middle(second), behind(first)
        width = outputs * found.shape[1]
        after = ops.next_rows(nn.op.reshape(after, (n, width)), positions)
        x = nn.op.reshape(found, (n, width)) + after
        here = ops.take_parts(present, 1, [(1, outputs)])  # of a row of the sound all are 1
        x = self.layer1.above_zero(self.layer1.norm(x, here, positions, 1))
        return self.input_proj_linear(x)


class Projector(nn.Module):
    """HF calls it `embed_audio`. Of a row of marks it projects a vector of the weights."""

    def __init__(self, hidden: int, width: int, eps: float) -> None:
        self.hidden, self.eps = hidden, eps
        self.soft_embedding_norm = RMSNorm(hidden, eps)
        self.marks = FrameConvolution(PATCH, 2 * hidden)
        """From a row's first patch: 1 for a row of the sound; then the vector of a mark."""
        self.embedding_projection = Linear(hidden, width)
        self.post = gemma4.UnweightedNorm(width, eps)

    def forward(self, x: Tensor, patches: Tensor) -> Tensor:
        marks = self.marks(patches)
        heard, vectors = (ops.take_parts(marks, 1, [(at, self.hidden)]) for at in (0, self.hidden))
        soft = ops.gated(heard, self.soft_embedding_norm(x), "identity")
        return self.post(self.embedding_projection(soft + vectors))


class Model(Encoder):
    """Gemma3nAudioEncoder and Gemma3nMultimodalEmbedder.

    token_ids i32[n] name rows of the host's numbers, positions i32[n], logit_rows i32[r] ->
    f32[r, width], rows of the prompt.
    """

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head)
        self.text_width = require(hf, "text_hidden_size")
        self.subsample_conv_projection = Subsampling(config, hf)
        self.layers = nn.ModuleList([Layer(config, hf, Linear) for _ in range(config.num_layers)])
        self.embed_audio = Projector(config.hidden_size, self.text_width, config.norm_eps)

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        width = TAPS * self.subsample_conv_projection.places * PATCH
        rows = ops.inputs_embeds(token_ids, None, width, self.config.vocab_size)
        x = self.subsample_conv_projection.subsampled(rows, positions)
        for layer in self.layers:
            x = layer(x, positions)
        patches = ops.take_rows(ops.take_parts(rows, 1, [(0, PATCH)]), logit_rows)
        return self.embed_audio(ops.take_rows(x, logit_rows), patches)

    @property
    def width(self) -> int:
        """Hidden size of the language model."""
        return self.text_width


def max_context(hf: HfConfig) -> int:
    """Rows of the longest sound before every `conf_reduction_factor`th is taken."""
    return require(hf, "max_source_positions")


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """audio_config of a Gemma3nForConditionalGeneration under Gemma 4's names, with
    `max_source_positions`, `max_rows` and `text_hidden_size`."""
    inner = 4 * require(hf, "hidden_size")
    known = {**hf, "layer_norm_eps": positive(hf, "rms_norm_eps"), "intermediate_size": inner}
    return replace(encoder_fields(known, "gemma3n_audio", max_context(hf)), ignored=())
