"""Cost of structured output: reading a schema, computing masks, and their share of a step.

    python -m benchmarks.engine.structured_output MODEL [--streams 1] [--tokens 96]

MODEL is a compiled folder. The same prompts are answered without constraint and with a schema of 50
fields, each stream with its own seed; times are medians.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click

from mlcc.engine import Request, SamplingParams
from mlcc.engine.sampling.grammar import Structure
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.model import Model

KINDS: tuple[dict[str, Any], ...] = (
    {"type": "string", "maxLength": 24},
    {"type": "integer", "minimum": 0, "maximum": 9999},
    {"type": "boolean"},
    {"enum": ["low", "middle", "high"]},
    {"type": "array", "items": {"type": "number"}, "maxItems": 3},
)
FIELDS = {f"field_{i}": KINDS[i % len(KINDS)] for i in range(50)}
SCHEMA = {
    "type": "object",
    "properties": FIELDS,
    "required": [*FIELDS],
    "additionalProperties": False,
}


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--streams", default=1)
@click.option("--tokens", default=96)
def main(model: Path, streams: int, tokens: int) -> None:
    """Print the results."""
    opened = open_model(model, EngineArgs(context=1024, max_batch=streams))
    grammars = opened.text.grammars
    assert grammars is not None
    grammars.check(Structure("regex", "a"))  # the tokenizer is read once
    reading = []
    for i in range(9):
        other = Structure("json_schema", json.dumps({**SCHEMA, "title": str(i)}))
        reading.append(seconds(partial(grammars.check, other)))
    print(f"a schema of {len(FIELDS)} fields: {median(reading) * 1e3:.1f} ms to read")
    again = [seconds(partial(grammars.open, other)) for _ in range(9)]
    print(f"the same again: {median(again) * 1e3:.2f} ms")
    structure = Structure("json_schema", json.dumps(SCHEMA))
    for name, constraint in (("free", None), ("structured", structure)) * 2:
        print(f"{name:>10}: {decoding(opened, constraint, streams, tokens)}")


def seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def decoding(model: Model, structure: Structure | None, streams: int, tokens: int) -> str:
    """Speed, time of a step, and the share of the masks."""
    driver, grammars = Driver(model), model.text.grammars
    assert grammars is not None
    for n in range(streams):
        sampling = SamplingParams(seed=n, max_tokens=tokens, ignore_eos=True)
        request = Request(str(n), [1 + n, 2, 3], sampling, structure=structure)
        driver.engine.add(request, structure and grammars.open(structure))
    engine, masks = driver.engine, [0.0]
    adjustments = engine.adjustments

    def timed(buffer: Any) -> Any:
        start = time.perf_counter()
        try:
            return adjustments(buffer)
        finally:
            masks[-1] += time.perf_counter() - start

    engine.adjustments = timed  # type: ignore[method-assign]
    steps, start = [], time.perf_counter()
    while driver.has_work:
        steps.append(seconds(driver.step))
        masks.append(0.0)
    span, tokens_out = time.perf_counter() - start, engine.stats().sampled_tokens
    step, mask = median(steps) * 1e3, median(masks) * 1e3
    return (
        f"{tokens_out / span:.1f} tokens/s, {len(steps)} steps for {tokens_out} tokens; "
        f"a step {step:.2f} ms, of it masks {mask:.3f} ms ({mask / step:.1%})"
    )


if __name__ == "__main__":
    main()
