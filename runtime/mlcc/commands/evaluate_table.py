"""What `mlcc eval --compare` found, as a table and as a drawing. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcc.errors import InvalidRequestError
from mlcc.eval.comparison import Compared
from mlcc.util.sizes import size

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
    """A line each, columns aligned; "-" is what is not known."""
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
    """Size against quality, a named point each, as SVG: KL divergence where it was measured, else
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
