"""RoBERTa (Liu et al., 2019) and XLM-R (Conneau et al., 2019): BERT whose positions start after the
padding token's, with another classifier head.
"""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.architectures import bert
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import tanh
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import Linear

DEFAULTS = bert.DEFAULTS | {
    "vocab_size": 50265,
    "max_position_embeddings": 512,
    "pad_token_id": 1,
}


class Head(nn.Module):
    """out_proj(tanh(dense(x)))."""

    def __init__(self, config: DecoderConfig, labels: int) -> None:
        self.dense = Linear(config.hidden_size, config.hidden_size, True)
        self.out_proj = Linear(config.hidden_size, labels, True)

    def forward(self, x: Tensor) -> Tensor:
        return self.out_proj(tanh(self.dense(x)))


class Model(bert.Model):
    """RobertaModel, or RobertaForSequenceClassification where there are labels."""

    def _add_head(self, config: DecoderConfig, labels: int) -> None:
        self.classifier = Head(config, labels)

    def score(self, x: Tensor) -> Tensor:
        return self.classifier(x)


def max_context(hf: HfConfig) -> int:
    """Maximum tokens of a text: positions up to the padding token's are not used."""
    pad = hf.get("pad_token_id")
    if type(pad) is not int or pad < 0:
        raise refuse("pad_token_id", "an id, behind which positions begin", pad)
    return require(hf, "max_position_embeddings") - pad - 1


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a RobertaModel or XLMRobertaModel."""
    if hf.get("is_decoder") or hf.get("add_cross_attention"):
        raise UnsupportedError("a RoBERTa that writes (is_decoder) is not built; encoders are")
    if (kind := hf.get("position_embedding_type", "absolute")) not in (None, "absolute"):
        raise UnsupportedError(
            f"config.json: position_embedding_type {kind!r:.40} is not built; 'absolute' is"
        )
    return bert.encoder_fields(hf, "roberta", max_context(hf))
