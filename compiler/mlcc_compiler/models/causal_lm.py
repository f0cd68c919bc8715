"""The language model shared by all decoder architectures: embedding, layers, norm, head.

Its inputs are tokens, positions and the rows that need logits; it is not aware that several
sequences share the batch (the attention operator handles that).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.eagle import EagleHead
from mlcc_compiler.models.layers import Embedding, Linear, hidden_norm
from mlcc_compiler.models.mtp import MultiTokenPrediction

LayerFactory = Callable[[DecoderConfig, int], nn.Module]


class Decoder(nn.Module):
    """The stack under the head; HF calls it `model`. An architecture whose layers take more than
    hidden states derives its own `Stack` from it."""

    def __init__(self, config: DecoderConfig, layer: LayerFactory) -> None:
        self.config, dtype = config, config.activation_dtype
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype)
        self.layers = nn.ModuleList([layer(config, i) for i in range(config.num_layers)])
        self.norm = hidden_norm(config)
        self.noted: dict[int, Tensor] = {}
        """Inputs of layers, while the model is traced, for an EAGLE-3 head."""

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """Hidden states of all tokens, a[n, hidden], before the last norm."""
        growth, layer_inputs = self.config.growth, []
        if growth is not None:
            layer_inputs = [
                ops.growth(positions, growth.beta, growth.length)
            ] * self.config.num_layers
        return self.run_layers(self.embed(token_ids), positions, layer_inputs)

    def embed(self, token_ids: Tensor) -> Tensor:
        """The input of the first layer."""
        config = self.config
        ids = token_ids
        if config.reads_images:
            ids = ops.remap(token_ids, 0, 1, config.vocab_size)  # any row of the table will do
        x = self.embed_tokens(ids)
        x = x if config.embed_scale == 1.0 else x * config.embed_scale
        if config.reads_images:
            x = ops.inputs_embeds(
                token_ids, x, config.hidden_size, config.vocab_size, parts=1 + config.deepstack
            )
        return x

    def rope_tables(self, positions: Tensor) -> list[Tensor]:
        """The angles of each rope of the config."""
        return [
            ops.mrope_table(positions, rope)
            if rope.sections and self.config.reads_images
            else ops.rope_table(positions, rope)
            for rope in self.config.ropes
        ]

    def run_layers(
        self, x: Tensor, positions: Tensor, layer_inputs: Sequence[Tensor] = ()
    ) -> Tensor:
        """Run x through all layers; `layer_inputs`, if any, has a further input for each."""
        tables = self.rope_tables(positions)
        for index, layer in enumerate(self.layers):
            self.note_input(index, x)
            rope = self.config.rope_of_layer[index]
            extra = (layer_inputs[index],) if layer_inputs else ()
            x = layer(x, None if rope is None else tables[rope], *extra)
        return x

    def align(self, token_ids: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
        """The weights of the alignment heads, of a model that has some."""
        raise NotImplementedError

    def note_input(self, layer: int, x: Tensor) -> None:
        """Keep the input of a layer that an EAGLE-3 head reads."""
        mtp = self.config.mtp
        if mtp is not None and mtp.eagle is not None and layer in mtp.eagle.inputs:
            self.noted[layer] = x


StackFactory = Callable[[DecoderConfig, LayerFactory], Decoder]


class CausalLM(nn.Module):
    """token_ids i32[n], positions i32[n], logit_rows i32[r] -> logits f32[r, vocab]."""

    def __init__(
        self, config: DecoderConfig, layer: LayerFactory, stack: StackFactory = Decoder
    ) -> None:
        self.config = config
        self.model = stack(config, layer)
        if not config.tie_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, result=ops.FLOAT32)
        self.mtp: MultiTokenPrediction | EagleHead
        if config.mtp is not None and config.mtp.eagle is not None:
            self.mtp = EagleHead(config.mtp.eagle, config.num_layers, config.vocab_size)
        elif config.mtp is not None:
            self.mtp = MultiTokenPrediction(config, layer)

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        """Logits; with a multi-token-prediction layer the states of all tokens are kept for it,
        after the last norm if the layer has one of its own, and for an EAGLE-3 head what it makes
        of its three."""
        x = self.model(token_ids, positions)
        if self.config.mtp is None:
            return self.logits(self.model.norm(ops.take_rows(x, logit_rows)))
        if not self.config.mtp.own_norm:
            return self.logits(self.model.norm(ops.keep_hidden(x, logit_rows, x)))
        x = self.model.norm(x)
        kept = x if isinstance(self.mtp, MultiTokenPrediction) else self.mtp.fuse(self.model.noted)
        return self.logits(ops.keep_hidden(x, logit_rows, kept))

    def forward_mtp(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        """The layer's logits. Each token follows the one at its position, whose kept state the step
        names; the layer's own states are kept in their place."""
        config, mtp = self.config, self.mtp
        assert config.mtp is not None
        hidden = ops.hidden_states(token_ids, config.hidden_size, config.activation_dtype)
        if isinstance(mtp, EagleHead):
            x = mtp(self.model.embed(token_ids), hidden, positions)
            return mtp.logits(ops.keep_hidden(x, logit_rows, x))
        x = mtp(self.model.embed(token_ids), hidden, self.model.rope_tables(positions))
        if config.mtp.normed:
            x = mtp.norm(x)
            return self.logits(ops.keep_hidden(x, logit_rows, x), mtp)
        norm = mtp.norm if config.mtp.own_norm else self.model.norm
        return self.logits(norm(ops.keep_hidden(x, logit_rows, x)), mtp)

    def forward_align(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        """Where the alignment heads listen: f32[r, heads * source_rows]."""
        return self.model.align(token_ids, positions, logit_rows)

    def logits(self, x: Tensor, drafts: MultiTokenPrediction | None = None) -> Tensor:
        """x a[r, hidden], normalised -> f32[r, vocab]; `drafts`: the layer that drafts with them,
        whose head is read if it has one."""
        config = self.config
        if config.logit_scale != 1.0:
            x = x * config.logit_scale
        if drafts is not None and drafts.mtp.own_head:
            logits = drafts.lm_head(x)
        elif config.tie_embeddings:
            logits = self.model.embed_tokens.as_head(x)
        else:
            logits = self.lm_head(x)
        return ops.softcap(logits, config.final_softcap) if config.final_softcap else logits
