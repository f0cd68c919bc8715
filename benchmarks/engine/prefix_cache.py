"""Time to first token with the prefix cache and without: a long prompt, and a chat's next turn.

    python -m benchmarks.engine.prefix_cache ARTIFACT [--tokens 1600] [--rounds 5]

Prompts are random tokens, new ones in each round; runs with the cache and without it alternate.
Prints a table and one JSON line; medians in milliseconds.
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

ANSWER, QUESTION = 16, 24
"""Tokens of the first answer, and of the user's next message."""


def first_token_ms(session: Session, prompt: Sequence[int]) -> tuple[float, int]:
    """(milliseconds to the first token, cached tokens of the prompt)."""
    params = {"temperature": 0.0, "max_tokens": ANSWER, "ignore_eos": True}
    for _ in session.answer(prompt, params):
        pass
    assert session.last is not None
    return 1e3 * session.last.first_token_s, session.last.cached_tokens


def measure(model: Model, tokens: int, rounds: int) -> dict[str, list[float]]:
    """All times of each kind of request."""
    rng = random.Random(7)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        prompt = [rng.randrange(3, model.capacity.vocab_size) for _ in range(tokens)]
        turn = [*prompt, *(rng.randrange(3, model.capacity.vocab_size) for _ in range(QUESTION))]
        for cache in (True, False):
            session = Session(replace(model, prefix_cache=cache))
            for name, tokens_in in (("first", prompt), ("again", prompt), ("next turn", turn)):
                spent, cached = first_token_ms(session, tokens_in)
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
