"""The model shared by all encoders: hidden states, then one row of each text.

A text is a sequence whose tokens are all in one step. `logit_rows` names a token of each: the first
for [CLS] pooling, the last for last-token pooling, any for the mean. A family's file has the
layers, and the head of its classifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.causal_lm import Decoder, LayerFactory
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.layers import Linear
from mlcc_compiler.models.pooling import DenseShape, EncoderHead

EncoderFactory = Callable[[DecoderConfig, EncoderHead], "Encoder"]


class Table(nn.Module):
    """A small lookup table [entries, hidden], never quantized: positions, segments."""

    def __init__(self, entries: int, hidden: int) -> None:
        self.weight = nn.Parameter((entries, hidden), "float32")

    def forward(self, ids: Tensor) -> Tensor:
        return ops.embedding(ids, self.weight, "f32")


class Dense(nn.Module):
    """A Dense module of sentence-transformers, after the pooling."""

    def __init__(self, shape: DenseShape) -> None:
        self.linear = Linear(shape.inputs, shape.outputs, shape.bias)
        self.tanh = shape.tanh

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return tanh(x) if self.tanh else x


class Encoder(nn.Module):
    """token_ids i32[n], positions i32[n], logit_rows i32[r] -> f32[r, width]."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead) -> None:
        self.config, self.encoder_head = config, encoder_head
        self.dense = nn.ModuleList([Dense(shape) for shape in encoder_head.dense])

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        x = self.states(token_ids, positions)
        x = self.pool(x, logit_rows)
        if self.encoder_head.labels:
            return self.score(x)
        for module in self.dense:
            x = module(x)
        return x

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """Hidden states of all tokens: a[n, hidden]."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Size of an output row."""
        if self.encoder_head.labels:
            return self.encoder_head.labels
        return (
            self.encoder_head.dense[-1].outputs
            if self.encoder_head.dense
            else self.config.hidden_size
        )

    @property
    def segments(self) -> int:
        """Number of segment types: ids are token + segment * vocabulary."""
        return 1

    def pool(self, x: Tensor, rows: Tensor) -> Tensor:
        """One row of each text."""
        return (
            ops.mean_rows(x, rows)
            if self.encoder_head.pooling == "mean"
            else ops.take_rows(x, rows)
        )

    def score(self, x: Tensor) -> Tensor:
        """The classifier's output for pooled rows."""
        raise NotImplementedError


class DecoderEncoder(Encoder):
    """The stack of a language model, pooled by its last token or the mean."""

    def __init__(
        self, config: DecoderConfig, encoder_head: EncoderHead, layer: LayerFactory
    ) -> None:
        super().__init__(replace(config, tie_embeddings=False), encoder_head)
        self.model = Decoder(config, layer)
        if encoder_head.labels:
            # named as AutoModelForSequenceClassification has it
            self.labels = Linear(config.hidden_size, encoder_head.labels)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.model.norm(self.model(token_ids, positions))

    def score(self, x: Tensor) -> Tensor:
        return self.labels(x)


def tanh(x: Tensor) -> Tensor:
    """Elementwise tanh."""
    return ops.softcap(x, 1.0)
