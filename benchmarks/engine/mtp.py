"""Multi-token prediction: decoding with `--speculate` and without, on the demo's questions.

    python examples/demo/train_mtp.py --output demo-mtp
    python -m benchmarks.models.padded_checkpoint demo-mtp demo-mtp-1b
    mlcc compile demo-mtp-1b --mtp --max-batch 16 --max-rows 64 --context 512 -o FOLDER
    python -m benchmarks.engine.mtp FOLDER [--how off mtp:1 mtp:3 lookup] [--at-once 1 4 16]

An EAGLE-3 head instead of a layer:

    python examples/demo/train_eagle.py --output demo-eagle
    python -m benchmarks.models.padded_checkpoint examples/demo/model demo-1b --head demo-eagle
    mlcc compile demo-1b --draft-head demo-1b-eagle --max-batch 16 --max-rows 64 --context 512 \
        -o FOLDER

Of another model, pieces of a text that it continues: `--text FILE --tokens 128`. With `--forced`
all drafts of the layer or head are verified, whatever they cost, and none are of lookup: that
counts their acceptance.

The ways take turns. A rate is of tokens after each answer's first, over the time from its first
token to its end, times the answers at once; the table has the medians of all turns, and beside them
rates by each answer's least time of all turns, which other processes disturb less. Answers are
compared too. The prefix cache is emptied between turns, so that lookup finds no earlier answer.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from mlcc.artifact.folder import Artifact
from mlcc.engine import Capacity, Finished, Request, SamplingParams, TextDelta
from mlcc.engine.spec_decode.budget import DraftBudget
from mlcc.engine.spec_decode.mtp import Drafter, MtpLayer, MtpProposer
from mlcc.engine.spec_decode.speculator import AcceptanceRates, Speculator
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.speculation import Speculation
from mlcc.model.text import text_of

QUESTIONS = Path(__file__).parents[2] / "examples" / "demo" / "eval.jsonl"
PIECE = 240
"""Letters of a text that are continued."""


@dataclass
class Turn:
    """The answers to all questions once."""

    answers: dict[str, list[int]]
    spans: dict[str, tuple[float, int]]
    """Seconds from an answer's first token to its end, and tokens in them."""
    at_once: int
    drafted: int
    accepted: int
    steps: int

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return rate_of(self.spans, self.at_once)


def rate_of(spans: Mapping[str, tuple[float, int]], at_once: int) -> float:
    """Tokens a second of answers with these times and tokens."""
    return at_once * sum(n for _, n in spans.values()) / sum(time for time, _ in spans.values())


def least(turns: Sequence[Turn]) -> float:
    """Tokens a second by the least time of each answer."""
    spans = {i: min(turn.spans[i] for turn in turns) for i in turns[0].spans}
    return rate_of(spans, turns[0].at_once)


def prompts_of(folder: Path, count: int) -> list[list[int]]:
    """The first questions of a fixed shuffle, as token ids."""
    rows = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    random.Random(0).shuffle(rows)
    text = text_of(Artifact.open(folder))
    return [text.encode_chat(row["messages"]) for row in rows[:count]]


def pieces_of(folder: Path, file: Path, count: int) -> list[list[int]]:
    """Beginnings of pieces of a text, evenly apart, as token ids."""
    text, whole = text_of(Artifact.open(folder)), file.read_text()
    begins = (whole.find(" ", i * len(whole) // count) + 1 for i in range(count))
    return [[*text.encode_prompt(whole[i : i + PIECE].rstrip())] for i in begins]


class Unbounded(DraftBudget):
    """A budget that allows all drafts."""

    spent = False

    def allows(self, decodes: int) -> bool:
        return True


class Always(Speculator):
    """Drafts and verifies as many tokens as it may."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.budget = Unbounded()

    def worthwhile(self, acceptance: AcceptanceRates, most: int, more: float = 0.0) -> int:
        return most

    def allocate(self, acceptance: AcceptanceRates, most: int) -> int:
        return most


class Forced(Speculation):
    """Drafts of the layer alone, all of which are verified."""

    def speculator(self, capacity: Capacity, draft: Drafter | None = None) -> Speculator:
        assert isinstance(draft, MtpLayer)
        return Always(lambda request, tokens, tree, scope: MtpProposer(tokens), self.longest)


def driver_of(folder: Path, how: str, args: argparse.Namespace) -> Driver:
    """The model with this `--speculate`."""
    model = open_model(folder, EngineArgs(model=str(folder), threads=args.threads, speculate=how))
    if args.forced and model.speculation is not None:
        forced = Forced(model.speculation.kind, model.speculation.longest)
        model = replace(model, speculation=forced)
    return Driver(model)


def turn(driver: Driver, prompts: list[list[int]], at_once: int, tokens: int) -> Turn:
    """Answer all questions, `at_once` at a time."""
    engine, todo = driver.engine, list(enumerate(prompts))
    before, live, times = engine.stats(), 0, dict[str, list[float]]()
    answers: dict[str, list[int]] = {str(i): [] for i, _ in todo}
    while todo or engine.has_work:
        while todo and live < at_once:
            number, prompt = todo.pop(0)
            sampling = SamplingParams(temperature=0.0, max_tokens=tokens)
            engine.add(Request(str(number), prompt, sampling))
            live += 1
        for event in driver.step():
            if isinstance(event, TextDelta) and event.token_ids:
                answers[event.request_id] += event.token_ids
                times.setdefault(event.request_id, [perf_counter(), len(event.token_ids)])
            if isinstance(event, Finished):
                live -= 1
                times.setdefault(event.request_id, [perf_counter(), 0]).append(perf_counter())
    engine.forget_prefixes()
    after = engine.stats()
    return Turn(
        answers,
        {i: (end - start, len(answers[i]) - int(n)) for i, (start, n, end) in times.items()},
        at_once,
        after.drafted_tokens - before.drafted_tokens,
        after.accepted_tokens - before.accepted_tokens,
        after.steps - before.steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--how", nargs="+", default=["off", "mtp:1", "mtp:3", "lookup"])
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--text", type=Path, help="continue pieces of it, instead of questions")
    parser.add_argument("--tokens", type=int, default=120, help="most tokens of an answer")
    parser.add_argument("--forced", action="store_true", help="verify all drafts")
    args = parser.parse_args()
    if args.text is None:
        prompts = prompts_of(args.folder, args.questions)
    else:
        prompts = pieces_of(args.folder, args.text, args.questions)
    drivers = {how: driver_of(args.folder, how, args) for how in args.how}
    print(
        "| at once | `--speculate` | tokens/s | ratio | of least times | ratio "
        "| accepted of drafted | steps | equal |"
    )
    print("|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for at_once in args.at_once:
        found: dict[str, list[Turn]] = {how: [] for how in args.how}
        for _ in range(args.turns):
            for how, driver in drivers.items():
                found[how].append(turn(driver, prompts, at_once, args.tokens))
        rates = {how: median(one.rate for one in turns) for how, turns in found.items()}
        for how, turns in found.items():
            last, plain = turns[-1], found[args.how[0]][-1].answers
            equal = sum(answer == plain[i] for i, answer in last.answers.items())
            ratio, best = rates[how] / rates[args.how[0]], least(turns)
            print(
                f"| {at_once} | {how} | {rates[how]:.1f} | {ratio:.2f} | {best:.1f} "
                f"| {best / least(found[args.how[0]]):.2f} | {last.accepted} of "
                f"{last.drafted} | {last.steps} | {equal} of {len(plain)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
