"""`mlcc batch MODEL IN.jsonl -o OUT.jsonl`: a file of requests in OpenAI's batch format, answered
without a server."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import batch_options, note
from mlcc.commands.terminal import loading
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, MlccError

if TYPE_CHECKING:
    from mlcc.batches.journal import LineCounts
    from mlcc.batches.local_batch import OpenLocalBatch
    from mlcc.local.caller import Caller

_MOST_LINE = 1 << 26


@click.command("batch", cls=GroupedCommand)
@batch_options
@click.argument("names", nargs=-1, metavar="[MODEL] IN.jsonl")
@click.option("-o", "--output", required=True, metavar="OUT.jsonl",
              type=click.Path(dir_okay=False, path_type=Path),
              help="File of the answers, a line for each line of IN.jsonl.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace OUT.jsonl if there is one.")
def batch_command(args: EngineArgs, names: tuple[str, ...], output: Path, overwrite: bool) -> None:
    """Answer a file of requests, one JSON object a line, as a full batch.

    Type `mlcc batch MODEL IN.jsonl -o OUT.jsonl`. Each line is a request of OpenAI's Batch API:
    {"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": [...]}}. Without MODEL,
    the model that the first line names is loaded.

    After Ctrl-C, or when the machine was switched off, the same command goes on: answers are kept
    in OUT.jsonl.partial until all are there.
    """
    if not 1 <= len(names) <= 2:
        raise InvalidRequestError("type `mlcc batch MODEL IN.jsonl -o OUT.jsonl`")
    source = Path(names[-1])
    if not source.is_file():
        raise InvalidRequestError(f"there is no file {source}; give a file of JSON lines")
    if output.exists() and not overwrite:
        raise InvalidRequestError(
            f"{output} is there already; give another -o, or --overwrite to replace it"
        )
    args = replace(args, model=names[0] if len(names) == 2 else _model_of(source))
    _run(args, source, output)


def _run(args: EngineArgs, source: Path, output: Path) -> None:
    from mlcc.model_cache.resolve import check_model

    check_model(args)
    try:
        counts = _completed(args, source, output)
    except (OSError, sqlite3.Error) as error:
        raise MlccError(
            f"the answers cannot be written ({error}); free some space where {output} is, and type "
            "the same command again: it goes on"
        ) from None
    if counts.failed:
        raise MlccError(
            f"{counts.failed} of {counts.total} lines have an error instead of an answer; "
            f"{output} has all of them: see 'status_code'"
        )
    note(f"{counts.total} lines are answered: {output}")


def _completed(args: EngineArgs, source: Path, output: Path) -> LineCounts:
    """Answer the lines that have no answer, and write the output."""
    from mlcc.batches.local_batch import LocalBatch
    from mlcc.loader import opener
    from mlcc.local.caller import Caller
    from mlcc.model_cache.resolve import resolve
    from mlcc.util.progress import Progress

    with Progress(patience=1.0) as progress:
        batch = LocalBatch(source, output, args.model).open(progress.step)
    try:
        counts = batch.counts
        if counts.pending < counts.total:
            note(f"{counts.total - counts.pending} of {counts.total} lines are answered already")
        if counts.pending:
            path = resolve(args)
            with loading(args.model):
                caller = Caller(opener(path, args))
            try:
                _answer(caller, batch)
            finally:
                caller.close()
        counts = batch.counts
        batch.write()
        return counts
    finally:
        batch.close()


def _answer(caller: Caller, batch: OpenLocalBatch) -> None:
    """Answer the lines. Raises KeyboardInterrupt, after a line that says what to type."""
    from mlcc.util.progress import Progress

    for line in caller.notes:
        note(line)
    with Progress() as progress:
        slots = 2 * caller.capacity.max_batch
        work = caller.start(batch.run(caller.answer, slots, progress.step))
        try:
            work.result()
            return
        except KeyboardInterrupt:
            work.cancel()
    counts = batch.counts
    note(
        f"{counts.total - counts.pending} of {counts.total} lines are answered and kept; type the "
        "same command again to go on"
    )
    raise KeyboardInterrupt


def _model_of(source: Path) -> str:
    """The model that the first line names. Raises InvalidRequestError."""
    with source.open("rb") as file:
        line = file.readline(_MOST_LINE)
    try:
        name = json.loads(line)["body"]["model"]
    except (ValueError, KeyError, TypeError, RecursionError):
        name = None
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(
            f"the first line of {source} names no model; type `mlcc batch MODEL {source} -o "
            "OUT.jsonl`"
        )
    return name
