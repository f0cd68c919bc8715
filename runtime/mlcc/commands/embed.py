"""`mlcc embed MODEL TEXT...`: embeddings on standard output, one line of JSON for each text."""

from __future__ import annotations

import json
from typing import Any

import click

from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import encoder_options
from mlcc.commands.terminal import loading, read_stdin
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError


@click.command("embed", cls=GroupedCommand)
@encoder_options
@click.argument("texts", nargs=-1)
@click.option("--dimensions", type=click.IntRange(1), metavar="N",
              help="Keep the first N numbers of each embedding, normalized again.")  # fmt: skip
@click.option(
    "--prompt-name", metavar="NAME", help="Name of the model's prompt that is put before each text."
)
@click.option("--truncate", is_flag=True, help="Cut texts that are too long.")
def embed_command(
    args: EngineArgs,
    texts: tuple[str, ...],
    dimensions: int | None,
    prompt_name: str | None,
    truncate: bool,
) -> None:
    """Compute the embedding of each TEXT, or of each line of the standard input for '-'.

    MODEL is an encoder. Each line that is printed is {"text", "embedding"}.
    """
    from mlcc.model_cache.resolve import check_model

    check_model(args)
    if texts == ("-",):
        texts = tuple(line for line in read_stdin().splitlines() if line.strip())
    if not texts:
        raise InvalidRequestError("there is no text; give some, or - for standard input")
    from mlcc.loader import opener
    from mlcc.local.engine import Engine
    from mlcc.model_cache.resolve import resolve

    fields: dict[str, Any] = {"dimensions": dimensions, "prompt_name": prompt_name}
    fields["truncate_prompt_tokens"] = -1 if truncate else None
    given = {name: value for name, value in fields.items() if value is not None}
    path = resolve(args)
    with loading(args.model):
        engine = Engine.of(opener(path, args))
    with engine:
        for first in range(0, len(texts), MOST_AT_ONCE):
            some = list(texts[first : first + MOST_AT_ONCE])
            made = engine.embeddings.create(input=some, **given)
            for text, row in zip(some, made.data, strict=True):
                line = {"text": text, "embedding": row.embedding}
                click.echo(json.dumps(line, ensure_ascii=False))


MOST_AT_ONCE = 256
"""Texts per batch; a batch is printed when it is complete."""
