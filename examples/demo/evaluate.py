"""Scores the demo model with torch: exact-match accuracy by task, and perplexity.

The f32 reference for every other backend. Greedy decoding gives the expected answer exactly when
each of its tokens, and the end token after it, is the likeliest one after the right ones before
it; so one forward pass per row decides (`--generate` decodes token by token instead, to check).

    python evaluate.py [--model model] [--fake-quant q8|q4] [--generate] [--wrong]
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent
GROUP = 32
Row = dict[str, Any]


def round_groups(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Symmetric integers with one scale per group of 32 along the input dimension."""
    top = 2 ** (bits - 1) - 1
    groups = weight.reshape(-1, GROUP)
    scale = groups.abs().amax(1, keepdim=True).clamp(min=1e-8) / top
    return ((groups / scale).round().clamp(-top, top) * scale).reshape(weight.shape)


@torch.no_grad()
def fake_quantize(model: torch.nn.Module, scheme: str) -> None:
    """Round the weights in place: q8 all of them to int8, q4 all but the embedding to int4."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            bits = 4 if scheme == "q4" and "embed" not in name else 8
            weight.copy_(round_groups(weight, bits))


class Scorer:
    """A loaded model with its tokenizer."""

    def __init__(self, folder: Path, scheme: str | None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if scheme:
            fake_quantize(self.model, scheme)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _prompt(self, row: Row) -> list[int]:
        return self._ids(
            self.tokenizer.apply_chat_template(
                row["messages"], tokenize=False, add_generation_prompt=True
            )
        )

    @torch.no_grad()
    def is_right(self, row: Row) -> bool:
        """Whether greedy decoding would give the answer and then stop."""
        prompt, answer = self._prompt(row), self._ids(row["answer"] + self.tokenizer.eos_token)
        logits = self.model(torch.tensor([prompt + answer])).logits[0]
        return logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer

    @torch.no_grad()
    def reply(self, row: Row, limit: int = 256) -> str:
        """Greedy decoding, token by token."""
        prompt = torch.tensor([self._prompt(row)])
        output = self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=limit, do_sample=False
        )
        return self.tokenizer.decode(output[0, prompt.shape[1] :], skip_special_tokens=True)

    @torch.no_grad()
    def perplexity(self, texts: list[str]) -> float:
        """exp of the mean negative log-likelihood per token, the first of each text excepted."""
        total, count = 0.0, 0
        for text in texts:
            ids = torch.tensor([self._ids(text)])
            logits = self.model(ids).logits[0, :-1]
            total += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
        return math.exp(total / count)


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def accuracy(scorer: Scorer, rows: list[Row], generate: bool, show_wrong: bool) -> float:
    """Prints the share of right answers by task and returns it over all rows."""
    right: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        said = scorer.reply(row) if generate else None
        right[row["task"]].append(said == row["answer"] if generate else scorer.is_right(row))
        if show_wrong and not right[row["task"]][-1]:
            question = row["messages"][-1]["content"]
            print(f"  {question!r}: {said or scorer.reply(row)!r}, not {row['answer']!r}")
    for task, results in sorted(right.items()):
        print(f"{task:16} {sum(results) / len(results):7.1%} of {len(results)}")
    results = [result for part in right.values() for result in part]
    return sum(results) / len(results)


def main() -> None:
    parser = argparse.ArgumentParser(description="score the demo model")
    parser.add_argument("--model", type=Path, default=HERE / "model")
    parser.add_argument("--fake-quant", choices=("q8", "q4"))
    parser.add_argument("--generate", action="store_true", help="decode token by token")
    parser.add_argument("--wrong", action="store_true", help="show the wrong replies")
    args = parser.parse_args()
    scorer = Scorer(args.model, args.fake_quant)
    overall = accuracy(scorer, read_rows(HERE / "eval.jsonl"), args.generate, args.wrong)
    texts = [row["text"] for row in read_rows(HERE / "heldout.jsonl")]
    print(f"overall {overall:.2%}, perplexity {scorer.perplexity(texts):.3f}")


if __name__ == "__main__":
    main()
