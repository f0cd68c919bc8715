"""Audio towers of language models that read sound as rows of their prompt: Whisper's encoder, and a
projector to the model's width. Qwen2-Audio (Chu et al., 2024) and Qwen2.5-Omni (Xu et al., 2025)
take the mean of two rows, Voxtral (Liu et al., 2025) four rows side by side. Qwen2.5-Omni's encoder
reads parts of two seconds apart, each with positions from 0 on.

The convolutions are those of `whisper.py`. A clip is a text, a row of two neighbouring frames a
token; `logit_rows` names the first row of each that is pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.architectures.whisper import EPS
from mlcc_compiler.models.audio import whisper
from mlcc_compiler.models.audio.whisper import Convolutions, Layer
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Table
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead

ALIASES = whisper.ALIASES
DEFAULTS: dict[str, Any] = {
    **whisper.DEFAULTS,
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "intermediate_size": 5120,
    "num_mel_bins": 128,
    "scale_embedding": False,
}


class MeanProjector(nn.Module):
    """The mean of the rows, a norm, and a matrix."""

    def __init__(self, hidden: int, pool: int, width: int) -> None:
        self.layer_norm, self.linear = LayerNorm(hidden, EPS), Linear(hidden, width, True)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        mean = sum(parts[1:], parts[0]) * (1 / len(parts))
        return self.linear(self.layer_norm(mean))


class StackProjector(nn.Module):
    """A norm, the rows side by side, and two matrices."""

    def __init__(self, hidden: int, pool: int, width: int) -> None:
        self.layer_norm = LayerNorm(hidden, EPS)
        self.linear_1, self.linear_2 = Linear(pool * hidden, width), Linear(width, width)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        x = ops.side_by_side([self.layer_norm(part) for part in parts])
        return self.linear_2(ops.activated(self.linear_1(x), "gelu"))


class Model(Convolutions):
    """The encoder and its projector: f32[r, width], rows of the prompt."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        hidden, self.parts = config.hidden_size, require(hf, "pool")
        self.text_width, self.chunk = require(hf, "text_hidden_size"), hf["chunk_rows"]
        self.embed_positions = Table(self.chunk or config.max_position, hidden)
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])
        projector = StackProjector if hf["stacked"] else MeanProjector
        self.projector = projector(hidden, self.parts, self.text_width)

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        x = self.states(token_ids, positions)
        rows = [ops.remap(logit_rows, k, 1, 0) for k in range(self.parts)]
        return self.projector([ops.take_rows(x, each) for each in rows])

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        places = ops.remap(positions, 0, 1, self.chunk) if self.chunk else positions
        x = self.convolved(token_ids) + self.embed_positions(places)
        for layer in self.layers:
            x = layer(x)
        return x

    @property
    def width(self) -> int:
        """Hidden size of the language model."""
        return self.text_width


def max_context(hf: HfConfig) -> int:
    """Rows of the longest clip."""
    return require(hf, "max_source_positions")


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """audio_config of a Qwen2AudioForConditionalGeneration, VoxtralForConditionalGeneration or
    Qwen2_5OmniThinkerForConditionalGeneration, with `pool`, `stacked`, `chunk_rows` and
    `text_hidden_size`."""
    if hf["scale_embedding"]:
        raise refuse("scale_embedding", "false", hf["scale_embedding"])
    config = encoder_fields(hf, "audio_input", max_context(hf))
    windows = (True,) * config.num_layers if hf["chunk_rows"] else ()
    unused = (*config.ignored, r"^audio_bos_eos_token\.")  # of Qwen2.5-Omni
    return replace(config, in_windows=windows, ignored=unused)
