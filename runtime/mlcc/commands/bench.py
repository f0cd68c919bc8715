"""`mlcc bench`: time to the first token and decode speed, of a local model or of a server. One
answer at a time; the repository's `benchmarks/serve.py` measures load.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from mlcc.commands.options import load_model, note, several_answering_options
from mlcc.commands.server_registry import Server, checked_url, events, opened
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, MlccError, printable

if TYPE_CHECKING:
    from mlcc.model.session import Session


@dataclass(frozen=True)
class Measured:
    """Measurements of one answer. Times in seconds."""

    prompt_tokens: int
    tokens: int
    first_token_s: float
    """From the request to the first token (TTFT)."""
    total_s: float

    @property
    def tokens_per_s(self) -> float:
        """Decode speed: tokens after the first one per second."""
        span = self.total_s - self.first_token_s
        return (self.tokens - 1) / span if self.tokens > 1 and span > 0 else 0.0

    @property
    def prompt_per_s(self) -> float:
        """Prompt tokens per second until the first token."""
        return self.prompt_tokens / self.first_token_s if self.first_token_s > 0 else 0.0


@click.command("bench")
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
    default=512,
    show_default=True,
    help="Length of each prompt in tokens.",
)
@click.option("--tokens", type=click.IntRange(2), default=128, show_default=True,
              help="Length of each answer in tokens.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True,
              help="Number of runs, after one that is not counted.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_command(
    args: EngineArgs,
    models: tuple[str, ...],
    url: str | None,
    name: str | None,
    prompt_tokens: int,
    tokens: int,
    runs: int,
    as_json: bool,
) -> None:
    """Measure a local model or a server: time to the first token, tokens per second.

    Prompts are new in each run, so that no cache has them. Give MODEL, or --url of a server with
    OpenAI's API.
    """
    if len(models) + (url is not None) != 1:
        raise InvalidRequestError("type `mlcc bench MODEL`, or `mlcc bench --url URL`: one of them")
    if url is not None:
        place = checked_url(url)
        name = name or _first_model(place)
        found = [_of_server(place, name, prompt_tokens, tokens) for _ in range(runs + 1)]
        about = f"{name} at {place}"
    else:
        about = models[0]
        found = list(_of_model(args, about, prompt_tokens, tokens, runs + 1))
    counted = found[1:]
    if as_json:
        rows = [{**asdict(run), "tokens_per_s": run.tokens_per_s} for run in counted]
        click.echo(json.dumps({"model": about, "runs": rows}, indent=1))
        return
    click.echo(f"{printable(about)}: median of {runs} answers, one at a time")
    for title, unit, value in (
        ("first token", "ms", lambda run: 1000 * run.first_token_s),
        ("prompt", "tokens/s", lambda run: run.prompt_per_s),
        ("answer", "tokens/s", lambda run: run.tokens_per_s),
    ):
        _line(title, unit, value, counted)


def _line(title: str, unit: str, value: Callable[[Measured], float], runs: list[Measured]) -> None:
    values = [value(run) for run in runs]
    spread = f"({min(values):.1f} to {max(values):.1f})"
    click.echo(f"{title:<12} {statistics.median(values):8.1f} {unit:<9} {spread}")


def _of_model(
    args: EngineArgs, model: str, prompt_tokens: int, tokens: int, runs: int
) -> Iterator[Measured]:
    from dataclasses import replace

    from mlcc.api.openai.requests import parse_sampling
    from mlcc.api.schema.chat_fields import COMPLETION
    from mlcc.model.session import Session

    session = Session(load_model(replace(args, model=model)))
    try:
        prompt_tokens = _within(session, prompt_tokens, tokens)
        fields = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        for run in range(runs):
            ids = _ids(session, prompt_tokens, run)
            for _ in session.answer(ids, parse_sampling(COMPLETION, fields)):
                pass
            timing = session.last
            assert timing is not None
            yield Measured(
                timing.prompt_tokens, timing.completion_tokens, timing.first_token_s, timing.total_s
            )
    finally:
        session.close()


def _within(session: Session, prompt_tokens: int, tokens: int) -> int:
    """The length of the prompt, reduced if the context is short."""
    room = session.model.capacity.context - tokens
    if room < 1:
        raise InvalidRequestError(
            f"the context is {session.model.capacity.context} tokens; use fewer --tokens"
        )
    if room < prompt_tokens:
        note(f"the context has room for {room} tokens of prompt")
    return min(room, prompt_tokens)


def _ids(session: Session, count: int, run: int) -> list[int]:
    """Ordinary tokens, different in each run from the first one on."""
    vocabulary = session.model.capacity.vocab_size
    low = vocabulary // 2
    return [low + (index * 7919 + run * 104729 + 13) % (vocabulary - low) for index in range(count)]


def _of_server(url: str, model: str, prompt_tokens: int, tokens: int) -> Measured:
    """Measure one streamed answer, whose last chunk has the token counts."""
    words = f"{os.urandom(4).hex()} " + "and then " * (prompt_tokens // 2)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first, pieces, usage = time.perf_counter(), 0.0, 0, None
    with opened(url, "/v1/chat/completions", body) as response:
        for chunk in events(url, response):
            usage = chunk.get("usage") or usage
            choice = (chunk.get("choices") or [{}])[0]
            if (choice.get("delta") or {}).get("content"):
                pieces += 1
                first = first or time.perf_counter()
    end = time.perf_counter()
    if not first:
        raise MlccError(f"{url}: the answer was empty; choose another --name")
    made = usage["completion_tokens"] if usage else pieces
    asked = usage["prompt_tokens"] if usage else prompt_tokens
    return Measured(asked, made, first - began, end - began)


def _first_model(url: str) -> str:
    return str(Server(url).models()[0]["id"])
