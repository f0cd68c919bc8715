"""The base of all vision towers: their output, and the sizes of their config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcc_compiler.ir._tvm import Tensor
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.pooling import EncoderHead

SIGLIP_DEFAULTS = {
    "num_channels": 3,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "vocab_size": 1,
}
"""A tower has no vocabulary: all its ids name rows of pixels, from 1 on."""


class Tower(Encoder):
    """token_ids i32[n] name patches, positions i32[n], logit_rows i32[r] the first patch of each
    merge block -> f32[r, width], rows of the prompt. A family derives its own `Model`."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head)
        self.parts = require(hf, "merge_size") ** 2
        self.text_width = require(hf, "text_hidden_size")

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        x = self.states(token_ids, positions)
        parts = [ops.take_rows(x, ops.remap(logit_rows, k, 1, 0)) for k in range(self.parts)]
        return self.connect(parts)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        """Rows of the prompt, of patches: one tensor f32[r, hidden] for each place of a merge
        block."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Hidden size of the language model."""
        return self.text_width


def tower_rows(hf: HfConfig) -> int:
    """Rows of the largest tile: of one size, or of `max_rows`; or of a window of sound."""
    if hf.get("image_size"):
        return int((patches_per_side(hf) // require(hf, "merge_size")) ** 2)
    return require(hf, "max_rows")


def prompt_rows(hf: HfConfig) -> int:
    """Rows of the largest image in the prompt, which may be of several tiles."""
    return require(hf, "prompt_rows") if "prompt_rows" in hf else tower_rows(hf)


def patches_per_side(hf: HfConfig) -> int:
    """Patches in a row of the square input; the merge blocks divide it."""
    side, merge = require(hf, "image_size") // require(hf, "patch_size"), require(hf, "merge_size")
    if side < 1 or side % merge:
        raise refuse("image_size", f"a multiple of {merge} patches a side", hf.get("image_size"))
    return side


def siglip_config(hf: HfConfig, architecture: str) -> DecoderConfig:
    """The config of a SigLIP tower."""
    from mlcc_compiler.models.architectures.bert import encoder_fields

    if require(hf, "num_channels") != 3:
        raise refuse("num_channels", "3", hf.get("num_channels"))
    config = encoder_fields(hf, architecture, patches_per_side(hf) ** 2)
    return replace(config, ignored=(r"^vision_model\.head\.",))
