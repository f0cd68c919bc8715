"""`mlcc eval MODEL`: accuracy on a file of tasks and perplexity on a file of texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcc.commands.options import ModelOptions, model_options, note
from mlcc.errors import InvalidRequestError

if TYPE_CHECKING:
    from mlcc.measure.evaluation import Score

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("eval")
@model_options
@click.option("--tasks", type=FILE, help='JSON lines {"task", "messages", "answer"}.')
@click.option("--text", "texts", type=FILE, help='JSON lines {"text"}.')
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def eval_command(
    options: ModelOptions, tasks: Path | None, texts: Path | None, as_json: bool
) -> None:
    """Score MODEL: exact-match accuracy on --tasks, perplexity on --text, or both."""
    if tasks is None and texts is None:
        raise InvalidRequestError("nothing to score; give --tasks FILE, --text FILE, or both")
    from mlcc.measure.evaluation import perplexity, read_rows, score_tasks

    rows = read_rows(tasks, ("messages", "answer")) if tasks else []
    lines = [row["text"] for row in read_rows(texts, ("text",))] if texts else []
    model = options.open()
    try:
        score = score_tasks(model, rows, _progress("answers", len(rows))) if rows else None
        value = perplexity(model, lines, _progress("texts", len(lines)), note) if lines else None
    finally:
        model.close()
    click.echo(_as_json(score, value) if as_json else _as_table(score, value))


def _progress(what: str, total: int) -> Callable[[int], None]:
    """A counter on a terminal's stderr; silent elsewhere."""

    def show(done: int) -> None:
        if sys.stderr.isatty():
            end = "\r\x1b[K" if done == total else ""
            click.echo(f"\r{what}: {done} of {total}{end}", nl=False, err=True)

    return show


def _as_json(score: Score | None, value: float | None) -> str:
    report: dict[str, object] = {}
    if score is not None:
        report["accuracy"] = score.accuracy
        report["tasks"] = {t: {"right": score.right[t], "of": n} for t, n in score.given.items()}
    if value is not None:
        report["perplexity"] = value
    return json.dumps(report, indent=1)


def _as_table(score: Score | None, value: float | None) -> str:
    lines = []
    if score is not None:
        for task in sorted(score.given):
            right, given = score.right[task], score.given[task]
            lines.append(f"{task:<24}{right:>5} of {given:<5}{100 * right / given:6.1f} %")
        right, given = sum(score.right.values()), sum(score.given.values())
        lines.append(f"{'exact matches':<24}{right:>5} of {given:<5}{100 * score.accuracy:6.1f} %")
    if value is not None:
        lines.append(f"{'perplexity':<24}{value:14.3f}")
    return "\n".join(lines)
