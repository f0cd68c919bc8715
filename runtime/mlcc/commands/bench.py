"""`mlcc bench`: time to the first token, gaps between tokens and throughput, of a local model or of
a server with OpenAI's API.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from mlcc.commands.bench_load import PERCENTILES, Answer, Load, Measurement, measure, percentile
from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import note, several_answering_options
from mlcc.commands.server_registry import Server, checked_url, events, opened
from mlcc.commands.terminal import loading
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, MlccError, printable


@click.command("bench", cls=GroupedCommand)
@several_answering_options
@click.option(
    "--url",
    metavar="URL",
    help="Measure a running server with OpenAI's API, instead of a model.",
)
@click.option("--name", help="Name of the server's model.", show_default="its first")
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    metavar="N",
    default=512,
    show_default=True,
    help="Length of each prompt in tokens.",
)
@click.option("--tokens", type=click.IntRange(2), metavar="N", default=128, show_default=True,
              help="Length of each answer in tokens.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1), metavar="N",
              show_default="3, or 4 times --concurrency",
              help="Number of answers, after one that is not counted.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1, 1024), metavar="N", default=1,
              show_default=True, help="Answers at once.")  # fmt: skip
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="R",
    help="Requests that arrive per second, at random times, instead of --concurrency.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg",
              help="Draw the distributions of both times.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_command(
    args: EngineArgs,
    models: tuple[str, ...],
    url: str | None,
    name: str | None,
    prompt_tokens: int,
    tokens: int,
    runs: int | None,
    concurrency: int,
    rate: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure a local model or a server: time to the first token, tokens per second.

    Prompts are new in each run, so that no cache has them. Give MODEL, or --url of a server with
    OpenAI's API.
    """
    if len(models) + (url is not None) != 1:
        raise InvalidRequestError("type `mlcc bench MODEL`, or `mlcc bench --url URL`: one of them")
    if rate is not None and concurrency > 1:
        raise InvalidRequestError("--rate and --concurrency are two kinds of load; give one")
    load = Load(runs or (3 if concurrency == 1 else 4 * concurrency), concurrency, rate)
    if url is not None:
        _refuse_options_of_models(args)
        place = checked_url(url)
        name = name or str(Server(place).models()[0]["id"])
        about = f"{name} at {place}"
        found = _measure(partial(_of_server, place, name, prompt_tokens, tokens), load)
    else:
        with _local(replace(args, model=models[0]), prompt_tokens, tokens) as (about, ask):
            found = _measure(ask, load)
    if plot is not None:
        _draw(plot, about, found)
    click.echo(_json(about, found) if as_json else _table(about, load, found))
    for message in found.errors[:1]:
        note(f"{len(found.errors)} of {load.requests} requests failed: {message}")


def _measure(ask: Callable[[int], Answer], load: Load) -> Measurement:
    """One request that is not counted, then the load."""
    ask(load.requests)
    return measure(ask, load)


def _refuse_options_of_models(args: EngineArgs) -> None:
    """Raises InvalidRequestError for options that a running server does not take."""
    other = EngineArgs("")
    given = [
        row.name for row in fields(args) if getattr(args, row.name) != getattr(other, row.name)
    ]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidRequestError(f"{flags}: is for a MODEL; the server at --url has its own")


def _times(found: Measurement) -> dict[str, list[float]]:
    """Both times of all answers, in milliseconds."""
    answers = found.answers
    return {
        "first token": [1000 * answer.first_token_s for answer in answers],
        "between tokens": [1000 * gap for answer in answers for gap in answer.gaps],
    }


def _table(about: str, load: Load, found: Measurement) -> str:
    how = f"{load.rate:g} requests a second" if load.rate else f"{load.concurrency} at once"
    heads = ["median" if percent == 50 else f"{percent} %" for percent in PERCENTILES]
    lines = [f"{printable(about)}: {len(found.answers)} answers, {how}"]
    lines.append(" " * 16 + "".join(f"{head:>10}" for head in heads))
    for title, values in _times(found).items():
        cells = "".join(f"{percentile(values, percent):10.1f}" for percent in PERCENTILES)
        lines.append(f"{title:<16}{cells} ms")
    for title, speeds in (
        ("prompt", [answer.prompt_per_s for answer in found.answers]),
        ("answer", [answer.tokens_per_s for answer in found.answers]),
    ):
        spread = f"({min(speeds):.1f} to {max(speeds):.1f})"
        lines.append(f"{title:<16}{percentile(speeds, 50):10.1f} tokens/s  {spread}")
    total = f"{found.tokens_per_s:10.1f} tokens/s, {found.requests_per_s:.2f} requests/s"
    return "\n".join([*lines, f"{'all together':<16}{total}"])


def _json(about: str, found: Measurement) -> str:
    rows = [
        {
            **asdict(answer),
            "first_token_s": answer.first_token_s,
            "total_s": answer.total_s,
            "tokens_per_s": answer.tokens_per_s,
        }
        for answer in found.answers
    ]
    summary = {
        f"{title.replace(' ', '_')}_ms": {
            f"p{percent}": percentile(values, percent) for percent in PERCENTILES
        }
        for title, values in _times(found).items()
    }
    speeds = {"tokens_per_s": found.tokens_per_s, "requests_per_s": found.requests_per_s}
    whole = {"model": about, **summary, **speeds, "failed": len(found.errors), "runs": rows}
    return json.dumps(whole, indent=1)


def _draw(path: Path, about: str, found: Measurement) -> None:
    from mlcc.commands.bench_plot import distributions

    try:
        path.write_text(distributions(about, _times(found)), encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"--plot {path}: cannot be written ({error.strerror})") from error


@contextmanager
def _local(
    args: EngineArgs, prompt_tokens: int, tokens: int
) -> Iterator[tuple[str, Callable[[int], Answer]]]:
    """The name of a model in this process, and how it is asked. Raises InvalidRequestError if the
    context is too short."""
    from mlcc.artifact.folder import Artifact
    from mlcc.loader import opener
    from mlcc.local.engine import Engine
    from mlcc.model_cache.resolve import resolve

    path = resolve(args)
    manifest = Artifact.open(path, verify=False).manifest
    context = min(args.context or manifest.limits.context, manifest.limits.context)
    prompt_tokens = _within(context, prompt_tokens, tokens)
    with loading(manifest.model.name) as report:
        engine = Engine.of(partial(opener(path, args), progress=report))
    for line in engine.notes:
        note(line)
    with engine:

        def ask(number: int) -> Answer:
            ids = _ids(manifest.model.vocab_size, prompt_tokens, number)
            began = time.perf_counter()
            stream = engine.completions.create(prompt=ids, **_fields(tokens))
            return _answer(stream, began, prompt_tokens, args.model)

        yield engine.model, ask


def _fields(tokens: int) -> dict[str, Any]:
    """The fields of every request."""
    usage = {"include_usage": True}
    fixed = {"temperature": 0, "ignore_eos": True, "stream": True, "stream_options": usage}
    return {"max_tokens": tokens, **fixed}


def _within(context: int, prompt_tokens: int, tokens: int) -> int:
    """The length of the prompt, reduced if the context is short."""
    room = context - tokens
    if room < 1:
        raise InvalidRequestError(f"the context is {context} tokens; use fewer --tokens")
    if room < prompt_tokens:
        note(f"the context has room for {room} tokens of prompt")
    return min(room, prompt_tokens)


def _ids(vocabulary: int, count: int, run: int) -> list[int]:
    """Ordinary tokens, different in each run from the first one on."""
    low = vocabulary // 2
    return [low + (index * 7919 + run * 104729 + 13) % (vocabulary - low) for index in range(count)]


def _of_server(url: str, model: str, prompt_tokens: int, tokens: int, _number: int) -> Answer:
    """Measure one streamed answer of a server."""
    words = f"{os.urandom(4).hex()} " + "and then " * (prompt_tokens // 2)
    messages = [{"role": "user", "content": words}]
    body = {"model": model, "messages": messages, **_fields(tokens)}
    began = time.perf_counter()
    with opened(url, "/v1/chat/completions", body) as response:
        return _answer(events(url, response), began, prompt_tokens, url)


def _answer(chunks: Iterator[Any], began: float, prompt_tokens: int, about: str) -> Answer:
    """The times of a stream's pieces; its last chunk has the token counts, if the server counts.
    Raises MlccError for an empty answer."""
    times, usage = list[float](), None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        choices: Sequence[Any] = chunk.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        if choices[0].get("text") or delta.get("content") or delta.get("reasoning_content"):
            times.append(time.perf_counter() - began)
    if not times:
        raise MlccError(f"{about}: the answer was empty; choose another --name")
    counted = usage or {"prompt_tokens": prompt_tokens, "completion_tokens": len(times)}
    return Answer(counted["prompt_tokens"], counted["completion_tokens"], tuple(times))
