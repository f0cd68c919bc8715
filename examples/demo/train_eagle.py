"""Trains an EAGLE-3 head (Li et al., 2025) for the demo model and writes it as such heads are
published.

The head reads the states that enter three of the model's layers, and learns the model's own
distributions over the likelier half of its tokens, on the chats of data.py; from its own states
too. Needs torch and transformers.

    python train_eagle.py --minutes 8 --output demo-eagle     about 8 minutes on one core
    mlcc compile model --draft-head demo-eagle -o demo-eagle-cpu
    mlcc chat demo-eagle-cpu --speculate mtp
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from train import Batch, Batches
from train_mtp import DEPTH, ChainAttention, arguments, fit, frozen, in_answers
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm

SHARE = 2
"""The head's vocabulary is the model's divided by this."""


class Eagle(nn.Module):
    """The head under its published names. tokens: those that it knows, in order."""

    def __init__(self, model: LlamaForCausalLM, tokens: Tensor) -> None:
        super().__init__()
        config = model.config
        hidden, eps, layers = config.hidden_size, config.rms_norm_eps, config.num_hidden_layers
        self.inputs = (2, layers // 2, layers - 3)
        self.tokens = tokens
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

    def forward(self, embedded: Tensor, x: Tensor, attend: ChainAttention) -> Tensor:
        """States [rows, n, hidden] of the next token of n chains."""
        layer = self.midlayer
        x = x + attend(torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(x)], -1))
        return x + layer.mlp(layer.post_attention_layernorm(x))


def loss_of(model: LlamaForCausalLM, eagle: Eagle, batch: Batch) -> Tensor:
    """Cross entropy of the head's distributions against the model's, over DEPTH drafts."""
    ids, drafted = batch.ids, in_answers(batch)
    with torch.no_grad():
        found = model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
        logits = model.lm_head(found.last_hidden_state)[..., eagle.tokens]
        wanted = logits.float().softmax(-1)
        embedded = model.model.embed_tokens(ids)
        three = torch.cat([found.hidden_states[layer] for layer in eagle.inputs], -1)
    states, losses = eagle.fc(three), []
    attend = ChainAttention(eagle.midlayer.self_attn, model.model.rotary_emb)
    for depth in range(1, DEPTH + 1):
        states = eagle(embedded[:, depth:], states[:, :-1], attend)
        here = drafted[:, depth:]
        scores = eagle.lm_head(eagle.norm(states[here])).float().log_softmax(-1)
        losses.append(-(wanted[:, depth:][here] * scores).sum(-1).mean())
    return torch.stack(losses).mean()


def likelier_tokens(tokenizer: Path, vocabulary: int, seed: int) -> Tensor:
    """The most frequent tokens of a few chats, in order of their ids."""
    counts: Counter[int] = Counter()
    for batch in islice(iter(Batches(tokenizer, seed, 4096)), 100):
        counts.update(batch.ids.flatten().tolist())
    frequent = sorted(range(vocabulary), key=lambda token: -counts[token])
    return torch.tensor(sorted(frequent[: vocabulary // SHARE]))


def save(eagle: Eagle, model: LlamaForCausalLM, folder: Path) -> None:
    """config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    known = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    known[eagle.tokens] = True
    tensors = {name: t.detach().half().contiguous() for name, t in eagle.state_dict().items()}
    tensors |= {"d2t": eagle.tokens - torch.arange(len(eagle.tokens)), "t2d": known}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {
        **model.config.to_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": len(eagle.tokens),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str))


def main() -> None:
    args = arguments("train an EAGLE-3 head for the demo model")
    model = frozen(args)
    tokens = likelier_tokens(args.model / "tokenizer.json", model.config.vocab_size, args.seed)
    eagle = Eagle(model, tokens).train()
    fit(eagle, lambda batch: loss_of(model, eagle, batch), args)
    save(eagle, model, args.output)


if __name__ == "__main__":
    main()
