"""Trains an EAGLE-3 head (Li et al., 2025) for the demo model, or for another from its own text,
and writes it as such heads are published.

The head reads the states that enter three of the model's layers, and learns the model's own
distributions over the likelier part of its tokens; from its own states too. The demo's texts are
the chats of data.py; another model's are what own_text.py writes. Needs torch and transformers.

    python train_eagle.py --minutes 8 --output demo-eagle     about 8 minutes on one core
    mlcc compile model --draft-head demo-eagle -o demo-eagle-cpu
    mlcc chat demo-eagle-cpu --speculate mtp

    python train_eagle.py --model gemma.gguf --text own.jsonl --vocabulary 8192 --minutes 60 \
        --threads 2 --batch 2048 --output gemma-eagle
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from own_batches import OwnBatches, open_model
from safetensors.torch import save_file
from torch import Tensor, nn
from train import Batch, Batches
from train_mtp import DEPTH, ChainAttention, arguments, fit, frozen, in_answers
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

SHARE = 2
"""The head's vocabulary is the model's divided by this, unless --vocabulary is given."""


@dataclass
class Seen:
    """What the head reads of the model for a batch, in the model's dtype."""

    embedded: Tensor
    three: Tensor
    """[rows, n, 3 * hidden]: the states that enter three layers."""
    last: Tensor
    """[positions, hidden]: the model's own states where tokens are drafted."""


def layer_config(config: Any) -> LlamaConfig:
    """A Llama's layer of the sizes of the model's."""
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    names += ("head_dim", "rms_norm_eps", "max_position_embeddings", "vocab_size")
    own = LlamaConfig(**{name: getattr(config, name) for name in names}, num_hidden_layers=1)
    if isinstance(config, LlamaConfig):
        own.rope_parameters = config.rope_parameters
    own._attn_implementation = "eager"
    return own


class Eagle(nn.Module):
    """The head under its published names. tokens: those that it knows, in order."""

    def __init__(self, model: PreTrainedModel, tokens: Tensor) -> None:
        super().__init__()
        config = self.config = layer_config(model.config)
        hidden, eps = config.hidden_size, config.rms_norm_eps
        layers = model.config.num_hidden_layers
        self.inputs = (2, layers // 2, layers - 3)
        self.tokens = tokens
        self.rotary = LlamaRotaryEmbedding(config)
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.midlayer = LlamaDecoderLayer(config, 0)
        self.midlayer.hidden_norm = LlamaRMSNorm(hidden, eps)
        for name in ("q_proj", "k_proj", "v_proj"):
            old = getattr(self.midlayer.self_attn, name)
            new = nn.Linear(2 * hidden, old.out_features, bias=False)
            setattr(self.midlayer.self_attn, name, new)
        self.norm = LlamaRMSNorm(hidden, eps)
        self.lm_head = nn.Linear(hidden, len(tokens), bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        with torch.no_grad():
            self.lm_head.weight.copy_(model.lm_head.weight[tokens])
        self.scale = torch.ones(3 * hidden)
        """Of the model's states while `fc` learns; `save` multiplies fc's columns by it."""

    def even(self, three: Tensor) -> None:
        """Choose the scale by these states, so that each of their dimensions is about one: some of
        Gemma's are thousands of times as large as others."""
        self.scale = three.flatten(0, 1).float().pow(2).mean(0).rsqrt()

    def fuse(self, three: Tensor) -> Tensor:
        """[rows, n, 3 * hidden] -> [rows, n, hidden]."""
        return self.fc(three * self.scale)

    def forward(self, embedded: Tensor, x: Tensor, attend: ChainAttention) -> Tensor:
        """States [rows, n, hidden] of the next token of n chains."""
        layer = self.midlayer
        x = x + attend(torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(x)], -1))
        return x + layer.mlp(layer.post_attention_layernorm(x))


@torch.no_grad()
def seen_of(model: Any, inputs: Iterable[int], batch: Batch) -> Seen:
    """One pass of the model."""
    ids = batch.ids
    found = model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
    three = torch.cat([found.hidden_states[layer] for layer in inputs], -1)
    return Seen(model.model.embed_tokens(ids), three, found.last_hidden_state[in_answers(batch)])


def loss_of(model: Any, eagle: Eagle, batch: Batch, seen: Seen) -> Tensor:
    """Cross entropy of the head's distributions against the model's, over DEPTH drafts."""
    drafted = in_answers(batch)
    with torch.no_grad():
        logits = seen.last @ model.lm_head.weight[eagle.tokens].T
        wanted, columns = logits.float().softmax(-1), drafted.nonzero()[:, 1]
    states, losses = eagle.fuse(seen.three), []
    attend = ChainAttention(eagle.midlayer.self_attn, eagle.rotary)
    for depth in range(1, DEPTH + 1):
        states = eagle(seen.embedded[:, depth:], states[:, :-1], attend)
        here = drafted[:, depth:]
        scores = eagle.lm_head(eagle.norm(states[here])).float().log_softmax(-1)
        losses.append(-(wanted[columns >= depth] * scores).sum(-1).mean())
    return torch.stack(losses).mean()


def likelier_tokens(batches: Iterable[Batch], vocabulary: int, count: int) -> Tensor:
    """The most frequent tokens of a few batches, in order of their ids."""
    counts: Counter[int] = Counter()
    for batch in islice(batches, 100):
        counts.update(batch.ids.flatten().tolist())
    frequent = sorted(range(vocabulary), key=lambda token: -counts[token])
    return torch.tensor(sorted(frequent[:count]))


def save(eagle: Eagle, model: PreTrainedModel, folder: Path) -> None:
    """config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    known = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    known[eagle.tokens] = True
    tensors = {name: t.detach().float().contiguous() for name, t in eagle.state_dict().items()}
    tensors["fc.weight"] = tensors["fc.weight"] * eagle.scale
    tensors |= {"d2t": eagle.tokens - torch.arange(len(eagle.tokens)), "t2d": known}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {
        **eagle.config.to_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(eagle.tokens),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str))


def train(model: PreTrainedModel, batches: Iterable[Batch], args: argparse.Namespace) -> Eagle:
    """Train a head and save it. States of an own text's batches, which come again, are kept."""
    count = args.vocabulary or model.config.vocab_size // SHARE
    eagle = Eagle(model, likelier_tokens(batches, model.config.vocab_size, count)).train()
    if args.text is not None:
        eagle.even(seen_of(model, eagle.inputs, next(iter(batches))).three)
    kept: dict[int, Seen] = {}

    def loss(batch: Batch) -> Tensor:
        seen = kept.get(id(batch)) or seen_of(model, eagle.inputs, batch)
        if args.text is not None:
            kept[id(batch)] = seen
        return loss_of(model, eagle, batch, seen)

    fit(eagle, loss, batches, args, lambda: save(eagle, model, args.output))
    return eagle


def main() -> None:
    parser = arguments("train an EAGLE-3 head for the demo model, or for another")
    parser.add_argument("--text", type=Path, help="own text of another model than the demo")
    parser.add_argument("--vocabulary", type=int, help="tokens that the head knows")
    args = parser.parse_args()
    if args.text is None:
        model: Any = frozen(args)
        batches: Any = Batches(args.model / "tokenizer.json", args.seed, args.batch)
    else:
        torch.manual_seed(args.seed)
        torch.set_num_threads(args.threads)
        model = open_model(args.model)
        batches = OwnBatches(args.text, args.seed, args.batch)
    train(model, batches, args)


if __name__ == "__main__":
    main()
