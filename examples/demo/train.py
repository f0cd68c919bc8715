"""Trains the demo model from nothing and writes it as a Hugging Face folder.

A 4-million-parameter Llama, trained on the endless chats of data.py: Muon for the matrices, AdamW
for the rest, the learning rate falling to zero with the budget. The last part trains through int4
rounding, so that the weights keep their answers when quantized. Needs torch and transformers.

    python train.py --minutes 28        about 28 minutes on two cores
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import torch
from data import draw, training_conversations
from evaluate import fake_quantize
from talk import story
from tokenizer import BEGIN, END_OF_TEXT, START, VOCABULARY, render, write
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

MODEL = Path(__file__).parent / "model"
BOS_ID, END_OF_TEXT_ID, START_ID, END_ID = 1, 0, 2, 3
CONTEXT = 2048
PLAIN_TEXT_SHARE = 0.03  # stories without a chat, for plain completion and for <|endoftext|>
OTHER_TOKEN_SHARE = 0.15  # of the tokens nobody has to answer: enough to model what users write


def model_config(layers: int = 6, intermediate: int = 640) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=BOS_ID,
        eos_token_id=END_ID,
        pad_token_id=END_OF_TEXT_ID,
    )


def documents(seed: int) -> Iterator[str]:
    """Endless training texts: rendered chats and a few plain stories."""
    rng = Random(seed)
    for chat in training_conversations(seed):
        if rng.random() < PLAIN_TEXT_SHARE:
            yield BEGIN + draw(rng, False, story).answer + END_OF_TEXT
        else:
            yield render(chat)


@dataclass(frozen=True)
class Batch:
    """Padded rows ``ids`` [rows, length]; ``picked`` are the flat positions that are predicted."""

    ids: Tensor
    picked: Tensor
    targets: Tensor


class Batches:
    """Turns documents into batches of about ``tokens`` tokens, rows of like length together."""

    def __init__(self, tokenizer: Path, seed: int, tokens: int, pool: int = 1024) -> None:
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.documents = documents(seed)
        self.rng = np.random.default_rng(seed)
        self.tokens, self.pool = tokens, pool
        self.reply_header = self.tokenizer.encode(f"{START}assistant\n").ids

    def __iter__(self) -> Iterator[Batch]:
        while True:
            texts = list(islice(self.documents, self.pool))
            rows = [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
            groups = self._groups(sorted(rows, key=len))
            for i in self.rng.permutation(len(groups)):
                yield self._batch(groups[i])

    def _groups(self, rows: list[list[int]]) -> list[list[list[int]]]:
        groups: list[list[list[int]]] = [[]]
        for row in rows:
            if (len(groups[-1]) + 1) * len(row) > self.tokens and groups[-1]:
                groups.append([])
            groups[-1].append(row[: self.tokens])
        return groups

    def _is_reply(self, row: list[int]) -> list[bool]:
        """For each token, whether the assistant says it; plain texts count as a whole."""
        if row[1] != START_ID:
            return [True] * len(row)
        mask, inside, n = [], False, len(self.reply_header)
        for i, token in enumerate(row):
            inside = inside or (i >= n and row[i - n : i] == self.reply_header)
            mask.append(inside)
            inside = inside and token != END_ID
        return mask

    def _batch(self, rows: list[list[int]]) -> Batch:
        ids = np.full((len(rows), max(map(len, rows))), END_OF_TEXT_ID)
        wanted = np.zeros(ids.shape, bool)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            other = self.rng.random(len(row)) < OTHER_TOKEN_SHARE
            wanted[i, : len(row)] = np.array(self._is_reply(row)) | other
        wanted[:, 0] = False
        positions = np.flatnonzero(wanted)  # of the targets; each is predicted one token earlier
        arrays = (ids, positions - 1, ids.flat[positions])
        return Batch(*map(torch.from_numpy, arrays))


def loss_of(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Mean cross entropy of the picked positions; only they go through the output layer."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden.flatten(0, 1)[batch.picked])
    return nn.functional.cross_entropy(logits.float(), batch.targets)


def optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def rate_factor(progress: float) -> float:
    """Warm-up, plateau, then linear to (almost) zero."""
    return min(1.0, progress / 0.02 + 0.02, (1.0 - progress) / 0.6 + 0.005)


@contextmanager
def rounded_weights(model: LlamaForCausalLM, active: bool) -> Iterator[None]:
    """Within, the weights are int4-rounded; gradients then apply to the exact ones."""
    if not active:
        yield
        return
    exact = [p.detach().clone() for p in model.parameters()]
    fake_quantize(model, "q4")
    yield
    with torch.no_grad():
        for p, value in zip(model.parameters(), exact, strict=True):
            p.copy_(value)


class Budget:
    """CPU minutes per thread rather than wall-clock, unless `by_wall`: other work on the machine
    costs no quality."""

    def __init__(self, minutes: float, by_wall: bool = False) -> None:
        self.seconds, self.start, self.wall = minutes * 60, time.process_time(), time.time()
        self.by_wall = by_wall

    @property
    def spent(self) -> float:
        return (time.process_time() - self.start) / torch.get_num_threads()

    @property
    def progress(self) -> float:
        return (time.time() - self.wall if self.by_wall else self.spent) / self.seconds

    def report(self, step: int, tokens: int, loss: float) -> str:
        wall = time.time() - self.wall
        eta = wall * (1 / max(self.progress, 1e-3) - 1) / 60
        return (
            f"step {step:5d}  loss {loss:.4f}  {tokens / 1e6:.2f} M tokens  "
            f"{tokens / wall:.0f} tokens/s  {self.progress:4.0%}  eta {eta:.1f} min  "
            f"{time.process_time() - self.start:.0f} CPU s"
        )


def train(args: argparse.Namespace) -> LlamaForCausalLM:
    torch.manual_seed(args.seed)
    config = model_config(args.layers, args.intermediate)
    config._attn_implementation = "eager"  # on CPUs twice as fast as sdpa's backward
    model = LlamaForCausalLM(config).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    steppers, budget = optimizers(model, args.rate), Budget(args.minutes)
    tokens, average = 0, 7.0
    for step, batch in enumerate(Batches(args.output / "tokenizer.json", args.seed, args.batch)):
        progress = budget.progress
        if progress >= 1:
            break
        with rounded_weights(model, progress > 1 - args.rounded):
            loss = loss_of(model, batch)
            loss.backward()
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = args.rate * rate_factor(progress)
            stepper.step()
            stepper.zero_grad()
        tokens, average = tokens + batch.ids.numel(), 0.98 * average + 0.02 * loss.item()
        if step % 100 == 0:
            print(budget.report(step, tokens, average), flush=True)
    print(budget.report(step, tokens, average), flush=True)
    return model


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """config.json, generation_config.json and model.safetensors in f16."""
    model.generation_config = GenerationConfig(
        bos_token_id=BOS_ID,
        eos_token_id=[END_ID, END_OF_TEXT_ID],
        pad_token_id=END_OF_TEXT_ID,
        do_sample=False,
    )
    model.to(torch.float16).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="train the demo model")
    parser.add_argument("--minutes", type=float, default=28, help="CPU minutes per thread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=4096, help="tokens in one step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--intermediate", type=int, default=640)
    parser.add_argument("--rounded", type=float, default=0.1, help="last share, through int4")
    parser.add_argument("--output", type=Path, default=MODEL)
    args = parser.parse_args()
    write(args.output)
    save(train(args), args.output)


if __name__ == "__main__":
    main()
