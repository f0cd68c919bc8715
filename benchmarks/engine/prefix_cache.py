"""What the prefix cache saves: time to the first token of a long prompt, and of a chat's next turn.

    python -m benchmarks.engine.prefix_cache ARTIFACT [--tokens 1600] [--rounds 5]

Prompts are random tokens, other ones in each round, with the cache and without it in turn. Prints a
table and one JSON line; medians in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc.model.session import Session

ANSWER, MORE = 16, 24
"""Tokens of the first answer, and of what the user says next."""


def first_token_ms(session: Session, prompt: Sequence[int]) -> tuple[float, int]:
    """Time to the first token, and how much of the prompt was cached."""
    wishes = {"temperature": 0.0, "max_tokens": ANSWER, "ignore_eos": True}
    for _ in session.answer(prompt, wishes):
        pass
    assert session.last is not None
    return 1e3 * session.last.first_token_s, session.last.cached_tokens


def measure(model: Model, tokens: int, rounds: int) -> dict[str, list[float]]:
    """Of each kind of request, all times."""
    draw = random.Random(7)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        prompt = [draw.randrange(3, model.capacity.vocab_size) for _ in range(tokens)]
        turn = [*prompt, *(draw.randrange(3, model.capacity.vocab_size) for _ in range(MORE))]
        for cache in (True, False):
            session = Session(replace(model, prefix_cache=cache))
            for name, asked in (("first", prompt), ("again", prompt), ("next turn", turn)):
                spent, cached = first_token_ms(session, asked)
                assert (cached >= tokens - 1) == (cache and name != "first")
                times[f"{name}, {'with' if cache else 'without'} cache"].append(spent)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--tokens", type=int, default=1600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    model = open_model(given.artifact, EngineArgs(threads=given.threads, context=2 * given.tokens))
    medians = {
        k: statistics.median(v) for k, v in measure(model, given.tokens, given.rounds).items()
    }
    print(f"first token of {given.tokens} tokens, ms")
    for name, spent in medians.items():
        print(f"{name:26} {spent:10.1f}")
    print(json.dumps({"tokens": given.tokens, "first_token_ms": medians}))


if __name__ == "__main__":
    main()
