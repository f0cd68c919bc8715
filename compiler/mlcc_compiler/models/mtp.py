"""Multi-token prediction (DeepSeek-AI, 2024): one more layer, or a few, that draft tokens from the
model's own hidden states.

From the state of a token and the embedding of the next one it predicts the token after that. Its
own state stands in for the model's where more than one token is drafted. It has keys and values of
its own; embedding and head are the model's. Of the head it may read a copy with fewer bits: a large
vocabulary takes longer to read than the layer, and a draft need not be exact.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.layers import Linear, hidden_norm


class MultiTokenPrediction(nn.Module):
    """The layer under Qwen3-Next's names; `checkpoint/name_maps.py` renames the others'."""

    def __init__(
        self, config: DecoderConfig, layer: Callable[[DecoderConfig, int], nn.Module]
    ) -> None:
        assert config.mtp is not None
        self.config, self.mtp = config.with_mtp_layers(), config.mtp
        self.numbers = range(config.num_layers, len(self.config.windows))
        self.pre_fc_norm_embedding = hidden_norm(config)
        self.pre_fc_norm_hidden = hidden_norm(config)
        self.fc = Linear(2 * config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList([layer(self.config, number) for number in self.numbers])
        if self.mtp.own_norm:
            self.norm = hidden_norm(config)
        if self.mtp.own_head:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, result=ops.FLOAT32)

    def forward(self, x: Tensor, hidden: Tensor, tables: list[Tensor]) -> Tensor:
        """x a[n, hidden], the embeddings of the next tokens, hidden a[n, hidden] -> a[n, hidden],
        before the last norm."""
        both = [self.pre_fc_norm_embedding(x), self.pre_fc_norm_hidden(hidden)]
        out = self.fc(ops.side_by_side(both[::-1] if self.mtp.hidden_first else both))
        for number, layer in zip(self.numbers, self.layers, strict=True):
            rope = self.config.rope_of_layer[number]
            out = layer(out, None if rope is None else tables[rope])
        return out
