"""Time of the engine's own work per step (plan + commit), without any device.

    python -m benchmarks.engine.plan_commit

Prints a table and one JSON line; medians in microseconds.
"""

from __future__ import annotations

import json
import statistics
import time

from mlcc.engine import Capacity, Engine, Request, Result, SamplingParams
from mlcc.engine.batch.tables import CacheGroup

STEPS = 300


class Bytes:
    """A tokenizer with almost no cost."""

    def decode(self, ids: list[int]) -> str:
        return bytes(32 + i % 90 for i in ids).decode()


def measure(sequences: int, prompt: int, stop: tuple[str, ...]) -> float:
    """Median of plan + commit while `sequences` decode, in microseconds."""
    capacity = Capacity.of(
        [CacheGroup("paged", 16)],
        [512 * sequences],
        vocab_size=100,
        context=8192,
        max_batch=sequences,
        max_step_tokens=512,
    )
    engine = Engine(capacity, (), Bytes())
    for i in range(sequences):
        engine.add(Request(str(i), [18] * prompt, SamplingParams(stop=stop)))
    times = []
    while len(times) < STEPS:
        start = time.perf_counter()
        batch = engine.plan()
        planned = time.perf_counter()
        assert batch is not None
        result = Result([1] * batch.num_rows, [0.0] * batch.num_rows)
        committing = time.perf_counter()
        engine.commit(result)
        if batch.num_tokens == sequences:
            times.append(planned - start + time.perf_counter() - committing)
    return 1e6 * statistics.median(times)


def main() -> None:
    cases = [(8, 100, ()), (8, 4000, ()), (8, 100, ("##", "END")), (64, 100, ())]
    rows = [
        {"sequences": n, "prompt": p, "stop_strings": len(s), "us": round(measure(n, p, s), 1)}
        for n, p, s in cases
    ]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
