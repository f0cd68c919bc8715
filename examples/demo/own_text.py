"""Writes a compiled model's own text, on which train_eagle.py trains a head for it.

Each row is a piece of a text file or an opening from OPENINGS, which the model continues: half of
the rows greedy, the others at temperature 0.7 or 1. Rows are added to the output as they end, so a
training may begin before all are there. Needs mlcc alone.

    mlcc compile MODEL.gguf --max-batch 32 --max-rows 32 --context 512 -o FOLDER
    python own_text.py FOLDER --prompts TEXT.txt --tokens 300000 --output own.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from mlcc.artifact.folder import Artifact
from mlcc.engine import Finished, Request, SamplingParams, TextDelta
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.text import text_of

TEMPERATURES = (0.0, 0.0, 0.7, 1.0)
OPENING_SHARE = 0.3
"""Of the rows, that begin with an opening and not with a piece of a file."""
PROMPT_LETTERS = (80, 320)
ANSWER_TOKENS = 160
OPENINGS = (
    "The history of {} begins",
    "Q: What is {}?\nA:",
    "Here is a recipe with {}:\n\n1.",
    "{} is important because",
    "Dear friend,\n\nI am writing to you about {}.",
    "Once upon a time there was a child that loved {}.",
    "# {}\n\n## Introduction\n",
    "The three most common kinds of {} are:\n- ",
    "def find_{}(items):\n    ",
    "In this article we show how {} works. First,",
)
THINGS = (
    *("music", "bread", "the moon", "rice", "water", "a river", "football", "the sea", "gold"),
    *("chess", "the heart", "paper", "a volcano", "honey", "the internet", "a library", "tea"),
    *("trees", "the bicycle", "salt", "a telescope", "snow", "a garden", "money", "dreams"),
)


def prompts(files: list[str], seed: int) -> Iterator[str]:
    """Endless prompts: pieces of texts, which begin at a word, and openings."""
    rng = Random(seed)
    while True:
        if rng.random() < OPENING_SHARE or not files:
            yield rng.choice(OPENINGS).format(rng.choice(THINGS))
            continue
        text, size = rng.choice(files), rng.randint(*PROMPT_LETTERS)
        begin = text.find(" ", rng.randrange(max(1, len(text) - size))) + 1
        yield text[begin : begin + size].rpartition(" ")[0].strip()


def rows(
    folder: Path, texts: Iterator[str], at_once: int, threads: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Token ids of endless rows as {"prompt", "text", "temperature"}, in the order of their end."""
    artifact = Artifact.open(folder)
    text = text_of(artifact)
    driver = Driver(open_model(folder, EngineArgs(model=str(folder), threads=threads)))
    rng, live, number = Random(seed), dict[str, dict[str, Any]](), 0
    while True:
        while len(live) < at_once:
            ids, heat, number = (
                text.encode_prompt(next(texts)),
                rng.choice(TEMPERATURES),
                number + 1,
            )
            sampling = SamplingParams(temperature=heat, max_tokens=ANSWER_TOKENS, seed=number)
            live[str(number)] = {"prompt": list(ids), "text": [], "temperature": heat}
            driver.engine.add(Request(str(number), ids, sampling))
        for event in driver.step():
            if isinstance(event, TextDelta):
                live[event.request_id]["text"] += event.token_ids
            elif isinstance(event, Finished):
                yield live.pop(event.request_id)


def main() -> None:
    parser = argparse.ArgumentParser(description="write a compiled model's own text")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], help="text files")
    parser.add_argument("--tokens", type=int, default=300_000, help="that the model writes")
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    texts = prompts([path.read_text() for path in args.prompts], args.seed)
    count = 0
    with args.output.open("w") as file:
        for row in rows(args.folder, texts, args.at_once, args.threads, args.seed):
            print(json.dumps(row), file=file, flush=True)
            count += len(row["text"])
            if count >= args.tokens:
                break
    print(f"{count:,} tokens")


if __name__ == "__main__":
    main()
