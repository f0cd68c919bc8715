"""Trains a multi-token-prediction layer for the demo model and writes both as a new folder.

The layer learns the model's own distributions on the chats of data.py, from the model's hidden
states and then from its own (its second and third draft token), as an engine runs it. The model
does not change. Needs torch and transformers.

    python train_mtp.py --minutes 8 --output demo-mtp     about 8 minutes on one core
    mlcc compile demo-mtp --mtp -o demo-mtp-cpu
    mlcc chat demo-mtp-cpu --speculate mtp
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from train import MODEL, Batch, Batches, Budget, rate_factor
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaRMSNorm,
    apply_rotary_pos_emb,
)

DEPTH = 3
"""Tokens that it learns to draft in a row."""
SAVE_SECONDS = 300
MUON_ROWS = 4096
"""Larger matrices (a head over thousands of tokens) take AdamW, as Muon would take most of a step.
Its updates are then as large as Muon's."""


class ChainAttention:
    """Attention of a layer that drafts a chain of tokens after each position of a text, all chains
    at once: EAGLE-3's training-time test (Li et al., 2025).

    A chain sees what the layer's cache has in an engine: of the text up to its beginning, keys that
    come from the model's states, and of its own tokens, keys that come from the layer's.
    """

    def __init__(self, attention: LlamaAttention, rotary: nn.Module) -> None:
        self.attention, self.rotary = attention, rotary
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, n, width]: the next token of the chains that begin at positions 0 to n - 1."""
        query = self._add(x)
        count, causal = x.shape[1], torch.full((x.shape[1],) * 2, -torch.inf).triu(1)
        text, *own = (key[:, :, :count] for key in self.keys)
        scores = [query @ text.transpose(2, 3) + causal]
        scores += [(query * key).sum(-1, keepdim=True) for key in own]
        scaled = torch.cat(scores, -1).float() * self.attention.scaling
        weights = scaled.softmax(-1).to(query.dtype)
        text, *own = (value[:, :, :count] for value in self.values)
        seen = weights[..., :count] @ text
        for depth, value in enumerate(own):
            seen = seen + weights[..., count + depth, None] * value
        return self.attention.o_proj(seen.transpose(1, 2).flatten(2))

    def _add(self, x: Tensor) -> Tensor:
        """Queries [rows, heads, n, head_dim]; keys and values are added to those before."""
        layer, depth = self.attention, len(self.keys)
        parts = (layer.q_proj(x), layer.k_proj(x), layer.v_proj(x))
        query, key, value = (
            part.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2) for part in parts
        )
        angles = self.rotary(x, torch.arange(depth, depth + x.shape[1])[None])
        query, key = apply_rotary_pos_emb(query, key, *angles)
        self.keys.append(key.repeat_interleave(layer.num_key_value_groups, 1))
        self.values.append(value.repeat_interleave(layer.num_key_value_groups, 1))
        return query


class Mtp(nn.Module):
    """The layer, under the names that mlcc and vLLM know from Qwen3-Next."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        config = model.config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding = LlamaRMSNorm(hidden, eps)
        self.pre_fc_norm_hidden = LlamaRMSNorm(hidden, eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, 0)])
        self.norm = LlamaRMSNorm(hidden, eps)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)

    def forward(self, embedded: Tensor, hidden: Tensor, attend: ChainAttention) -> Tensor:
        """States [rows, n, hidden] of the next token of n chains."""
        both = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden))
        x, layer = self.fc(torch.cat(both, -1)), self.layers[0]
        x = x + attend(layer.input_layernorm(x))
        return self.norm(x + layer.mlp(layer.post_attention_layernorm(x)))


def in_answers(batch: Batch) -> Tensor:
    """bool [rows, n]: positions whose next token is one that an engine drafts: those of answers,
    and a share of the others."""
    found = torch.zeros(batch.ids.shape, dtype=torch.bool)
    found.view(-1)[batch.picked] = True
    return found


def loss_of(model: LlamaForCausalLM, mtp: Mtp, batch: Batch) -> Tensor:
    """Cross entropy of the layer's distributions against the model's, over DEPTH drafts."""
    ids, drafted = batch.ids, in_answers(batch)
    with torch.no_grad():
        states = model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = model.lm_head(states).float().softmax(-1)
        embedded = model.model.embed_tokens(ids)
    attend, losses = ChainAttention(mtp.layers[0].self_attn, model.model.rotary_emb), []
    for depth in range(1, DEPTH + 1):
        states = mtp(embedded[:, depth:], states[:, :-1], attend)
        here = drafted[:, depth:]
        logits = model.lm_head(states[here]).float().log_softmax(-1)
        losses.append(-(wanted[:, depth:][here] * logits).sum(-1).mean())
    return torch.stack(losses).mean()


def frozen(args: argparse.Namespace) -> LlamaForCausalLM:
    """The model, which does not learn."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = LlamaForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="eager"
    )
    return model.requires_grad_(False)


def fit(
    head: nn.Module,
    loss_of: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    args: argparse.Namespace,
    save: Callable[[], None],
) -> None:
    """Train a head for `args.minutes`; loss_of: the loss of a batch. It is saved at the end, and
    each SAVE_SECONDS before."""
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters", flush=True)
    matrices = [p for p in head.parameters() if p.ndim == 2 and len(p) <= MUON_ROWS]
    tables = [p for p in head.parameters() if p.ndim == 2 and len(p) > MUON_ROWS]
    others = [p for p in head.parameters() if p.ndim != 2]
    groups = [{"params": others, "share": 1.0}, {"params": tables, "share": 0.2}]
    steppers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    budget, tokens, average = Budget(args.minutes, args.wall), 0, 7.0
    saved = time.time()
    for step, batch in enumerate(batches):
        progress = budget.progress
        if progress >= 1:
            break
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(batch)
        loss.backward()
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = args.rate * rate_factor(progress) * group.get("share", 1.0)
            stepper.step()
            stepper.zero_grad()
        tokens, average = tokens + batch.ids.numel(), 0.98 * average + 0.02 * loss.item()
        due = time.time() > saved + SAVE_SECONDS
        if step % 20 == 0 or due:
            print(budget.report(step, tokens, average), flush=True)
        if due:
            save()
            saved = time.time()
    print(budget.report(step, tokens, average), flush=True)
    save()


def save(mtp: Mtp, model: Path, folder: Path) -> None:
    """The model's folder with the layer's tensors beside its own."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    own = {f"mtp.{name}": t.detach().half() for name, t in mtp.state_dict().items()}
    path = folder / "model.safetensors"
    save_file(load_file(path) | own, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mtp_num_hidden_layers": 1}, indent=2))


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of a training."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=8, help="CPU minutes per thread")
    parser.add_argument("--wall", action="store_true", help="minutes of wall time instead")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4096, help="tokens in one step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--output", type=Path, required=True)
    return parser


def main() -> None:
    args = arguments("train a layer that drafts for the demo model").parse_args()
    model = frozen(args)
    mtp = Mtp(model).train()
    batches = Batches(args.model / "tokenizer.json", args.seed, args.batch)
    fit(
        mtp,
        lambda batch: loss_of(model, mtp, batch),
        batches,
        args,
        lambda: save(mtp, args.model, args.output),
    )


if __name__ == "__main__":
    main()
