"""Trains a multi-token-prediction layer for the demo model and writes both as a new folder.

The layer learns the model's own distributions on the chats of data.py, from the model's hidden
states and then from its own (its second and third draft token). The model does not change. Needs
torch and transformers.

    python train_mtp.py --minutes 8 --output demo-mtp     about 8 minutes on one core
    mlcc compile demo-mtp --mtp -o demo-mtp-cpu
    mlcc chat demo-mtp-cpu --speculate mtp
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from train import MODEL, Batches, Budget, rate_factor
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm

DEPTH = 3
"""Tokens that it learns to draft in a row."""


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

    def forward(self, embedded: Tensor, hidden: Tensor, first: int, rotary: nn.Module) -> Tensor:
        """States [rows, n, hidden] at the positions from `first` on."""
        both = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden))
        x = self.fc(torch.cat(both, -1))
        count = x.shape[1]
        positions = torch.arange(first, first + count)[None]
        mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
        angles = rotary(x, positions)
        return self.norm(self.layers[0](x, attention_mask=mask, position_embeddings=angles))


def loss_of(model: LlamaForCausalLM, mtp: Mtp, ids: Tensor) -> Tensor:
    """Cross entropy of the layer's distributions against the model's, over DEPTH drafts."""
    with torch.no_grad():
        states = model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = model.lm_head(states).float().softmax(-1)
        embedded = model.model.embed_tokens(ids)
    losses = []
    for depth in range(1, DEPTH + 1):
        states = mtp(embedded[:, depth:], states[:, :-1], depth - 1, model.model.rotary_emb)
        logits = model.lm_head(states).float().log_softmax(-1)
        real = (ids[:, depth:] != 0)[..., None]
        losses.append(-(wanted[:, depth:] * logits * real).sum() / real.sum())
    return torch.stack(losses).mean()


def frozen(args: argparse.Namespace) -> LlamaForCausalLM:
    """The model, which does not learn."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = LlamaForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="eager"
    )
    return model.requires_grad_(False)


def fit(head: nn.Module, loss_of: Callable[[Tensor], Tensor], args: argparse.Namespace) -> None:
    """Train a head for `args.minutes`; loss_of: the loss of a batch's token ids."""
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters", flush=True)
    matrices = [p for p in head.parameters() if p.ndim == 2]
    others = [p for p in head.parameters() if p.ndim != 2]
    steppers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    budget, tokens, average = Budget(args.minutes), 0, 7.0
    for step, batch in enumerate(Batches(args.model / "tokenizer.json", args.seed, args.batch)):
        progress = budget.progress
        if progress >= 1:
            break
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(batch.ids)
        loss.backward()
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = args.rate * rate_factor(progress)
            stepper.step()
            stepper.zero_grad()
        tokens, average = tokens + batch.ids.numel(), 0.98 * average + 0.02 * loss.item()
        if step % 50 == 0:
            print(budget.report(step, tokens, average), flush=True)
    print(budget.report(step, tokens, average), flush=True)


def save(mtp: Mtp, model: Path, folder: Path) -> None:
    """The model's folder with the layer's tensors beside its own."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    own = {f"mtp.{name}": t.detach().half() for name, t in mtp.state_dict().items()}
    path = folder / "model.safetensors"
    save_file(load_file(path) | own, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mtp_num_hidden_layers": 1}, indent=2))


def arguments(description: str) -> argparse.Namespace:
    """The options of a training."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=8, help="CPU minutes per thread")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4096, help="tokens in one step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    args = arguments("train a layer that drafts for the demo model")
    model = frozen(args)
    mtp = Mtp(model).train()
    fit(mtp, lambda ids: loss_of(model, mtp, ids), args)
    save(mtp, args.model, args.output)


if __name__ == "__main__":
    main()
