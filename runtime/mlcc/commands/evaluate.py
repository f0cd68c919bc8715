"""`mlcc eval MODEL`: accuracy on a file of tasks and perplexity on a file of texts; with --compare,
size, speed and quality of several quantizations, as a table and a plot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import load_model, note, several_models_options
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError
from mlcc.eval.comparison import Compared
from mlcc.util.sizes import size

if TYPE_CHECKING:
    from mlcc.eval.divergence import Divergence
    from mlcc.eval.evaluation import Score
    from mlcc.model.model import Model


HEADINGS = (
    "model",
    "bits",
    "tables",
    "weights",
    "prefill/s",
    "decode/s",
    "perplexity",
    "KL",
    "top-1",
)


def table(rows: Sequence[Compared]) -> str:
    """One line per model, columns aligned; "-" = unknown."""
    lines = [HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[0] *= -1  # names to the left
    return "\n".join(
        "  ".join(
            cell.rjust(w) if w > 0 else cell.ljust(-w) for cell, w in zip(line, widths, strict=True)
        )
        for line in lines
    )


def _cells(row: Compared) -> tuple[str, ...]:
    distance = row.divergence
    return (
        row.name,
        "-" if row.bits is None else f"{row.bits:.2f}",
        "-" if row.table_bits is None else f"{row.table_bits:.2f}",
        size(row.weights_bytes),
        f"{row.prefill:.0f}",
        f"{row.decode:.1f}",
        "-" if row.perplexity is None else f"{row.perplexity:.3f}",
        "-" if distance is None else f"{distance.kl:.4f}",
        "-" if distance is None else f"{100 * distance.top1:.1f} %",
    )


def draw(rows: Sequence[Compared], path: Path) -> None:
    """Plot size against quality, one named point per model, as SVG: KL divergence if measured, else
    perplexity. Raises InvalidRequestError without a text, or if the file cannot be written."""
    known = [r for r in rows if r.perplexity is not None]
    if not known:
        raise InvalidRequestError("--plot draws quality, which needs a text; give --text FILE")
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    measured = all(r.divergence is not None for r in known)
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for row in known:
        quality = row.divergence.kl if measured and row.divergence else row.perplexity or 0.0
        place = (row.weights_bytes / 1e6, quality)
        axes.plot(*place, "o")
        axes.annotate(row.name, place, xytext=(5, 5), textcoords="offset points", fontsize=8)
    axes.set_xlabel("weights, MB")
    axes.set_ylabel("KL divergence from the reference, nats" if measured else "perplexity")
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path, format="svg")
    except OSError as error:
        raise InvalidRequestError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        pyplot.close(figure)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("eval", cls=GroupedCommand)
@several_models_options
@click.option(
    "--tasks", type=FILE, help='Tasks to score: JSON lines {"task", "messages", "answer"}.'
)
@click.option("--text", "texts", type=FILE, help='Texts for perplexity: JSON lines {"text"}.')
@click.option(
    "--against",
    metavar="ARTIFACT",
    help="Reference model, for KL divergence and the share of equal top tokens.",
)
@click.option(
    "--compare", is_flag=True, help="Print a table of several MODELs: bits, size, speed, quality."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.svg",
              help="Plot the results of --compare.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def eval_command(
    args: EngineArgs,
    models: tuple[str, ...],
    tasks: Path | None,
    texts: Path | None,
    against: str | None,
    compare: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Score MODEL: exact-match accuracy on --tasks, perplexity on --text, or both.

    --against an artifact of the same checkpoint, for example with --quant f32, measures how far the
    model's probabilities are from its own. --compare does this for several and adds their sizes.
    """
    from mlcc.eval.evaluation import perplexity, read_rows, score_tasks

    if plot is not None and not compare:
        raise InvalidRequestError("--plot draws what --compare finds; give both")
    if against is not None and texts is None:
        raise InvalidRequestError("--against compares on a text; give --text FILE")
    if compare:
        if tasks is not None or not models:
            raise InvalidRequestError("type `mlcc eval --compare MODEL... --text FILE`, no --tasks")
        _compare(args, models, texts, against, plot, as_json)
        return
    if len(models) != 1:
        raise InvalidRequestError("give one MODEL, or several with --compare")
    if tasks is None and texts is None:
        raise InvalidRequestError("nothing to score; give --tasks FILE, --text FILE, or both")
    rows = read_rows(tasks, ("messages", "answer")) if tasks else []
    lines = [row["text"] for row in read_rows(texts, ("text",))] if texts else []
    model = load_model(replace(args, model=models[0]))
    score = value = distance = None
    try:
        if rows:
            score = score_tasks(model, rows, _progress("answers", len(rows)))
        if against is not None:
            distance = _against(args, model, against, lines)
        elif lines:
            value = perplexity(model, lines, _progress("texts", len(lines)), note)
    finally:
        model.close()
    click.echo((_as_json if as_json else _as_table)(score, value, distance))


def _against(args: EngineArgs, model: Model, against: str, lines: list[str]) -> Divergence:
    from mlcc.eval.divergence import diverge

    reference = load_model(replace(args, model=against))
    try:
        return diverge(model, reference, lines, _progress("texts", len(lines)), note)
    finally:
        reference.close()


def _compare(
    args: EngineArgs,
    models: tuple[str, ...],
    texts: Path | None,
    against: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure one model at a time, so that at most two are in memory."""
    from mlcc.eval.evaluation import read_rows
    from mlcc.model_cache.resolve import check_model
    from mlcc.util.extras import require

    if plot is not None:
        require("matplotlib", "plot", "--plot")
    lines = [row["text"] for row in read_rows(texts, ("text",))] if texts else []
    every = [replace(args, model=name) for name in (*models, *([against] if against else ()))]
    for each in every:  # check first: a missing model would waste minutes of measuring
        check_model(each)
    found = [_compared(args, name, lines, against) for name in models]
    click.echo(json.dumps([asdict(row) for row in found], indent=1) if as_json else table(found))
    if plot is not None:
        draw(found, plot)


def _compared(args: EngineArgs, name: str, lines: list[str], against: str | None) -> Compared:
    from mlcc.artifact.folder import Artifact
    from mlcc.eval.comparison import bits_of, speed
    from mlcc.eval.evaluation import perplexity
    from mlcc.model_cache.resolve import resolve

    args = replace(args, model=name)
    manifest = Artifact.open(resolve(args), verify=False).manifest
    linear, tables = bits_of(manifest.quantization)
    model = load_model(args)
    value = distance = None
    try:
        prefill, decode = speed(model)
        if against is not None:
            distance = _against(args, model, against, lines)
            value = distance.perplexity
        elif lines:
            value = perplexity(model, lines, _progress("texts", len(lines)), note)
    finally:
        model.close()
    nbytes = manifest.memory.weights_bytes
    return Compared(Path(name).name, linear, tables, nbytes, prefill, decode, value, distance)


def _progress(what: str, total: int) -> Callable[[int], None]:
    """A counter on a terminal's stderr; silent elsewhere."""

    def show(done: int) -> None:
        if sys.stderr.isatty():
            end = "\r\x1b[K" if done == total else ""
            click.echo(f"\r{what}: {done} of {total}{end}", nl=False, err=True)

    return show


def _as_json(score: Score | None, value: float | None, distance: Divergence | None) -> str:
    report: dict[str, object] = {}
    if score is not None:
        report["accuracy"] = score.accuracy
        report["tasks"] = {t: {"right": score.right[t], "of": n} for t, n in score.given.items()}
    if value is not None:
        report["perplexity"] = value
    if distance is not None:
        report |= asdict(distance)
    return json.dumps(report, indent=1)


def _as_table(score: Score | None, value: float | None, distance: Divergence | None) -> str:
    lines = []
    if score is not None:
        for task in sorted(score.given):
            right, given = score.right[task], score.given[task]
            lines.append(f"{task:<24}{right:>5} of {given:<5}{100 * right / given:6.1f} %")
        right, given = sum(score.right.values()), sum(score.given.values())
        lines.append(f"{'exact matches':<24}{right:>5} of {given:<5}{100 * score.accuracy:6.1f} %")
    if value is not None:
        lines.append(f"{'perplexity':<24}{value:14.3f}")
    if distance is not None:
        change = 100 * distance.perplexity_change
        lines.append(f"{'perplexity':<24}{distance.perplexity:14.3f}  ({change:+.1f} %)")
        lines.append(f"{'of the reference':<24}{distance.reference_perplexity:14.3f}")
        lines.append(f"{'KL divergence':<24}{distance.kl:14.4f}  nats a token")
        lines.append(f"{'same likeliest token':<24}{100 * distance.top1:14.1f} %")
    return "\n".join(lines)
