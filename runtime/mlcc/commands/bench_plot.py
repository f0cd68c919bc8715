"""The plot of `mlcc bench --plot`: distributions of times as an SVG file, without a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from mlcc.commands.bench_load import percentile

_WIDTH, _HEIGHT, _MARGIN = 720, 300, 56
_COLOURS = ("#1f6feb", "#d1571b")
_STEPS = 200


def distributions(title: str, series: Mapping[str, Sequence[float]]) -> str:
    """An SVG with a panel for each series of milliseconds: the share of values up to each time."""
    panels = [
        _panel(name, sorted(values), colour, index)
        for index, ((name, values), colour) in enumerate(
            zip(series.items(), _COLOURS, strict=False)
        )
    ]
    height = len(panels) * _HEIGHT + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_MARGIN}" y="28" font-size="16">{escape(title)}</text>{"".join(panels)}</svg>\n'
    )


def _panel(name: str, values: Sequence[float], colour: str, index: int) -> str:
    top = _MARGIN + index * _HEIGHT
    bottom, right = top + _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    most = values[-1] or 1.0

    def x(value: float) -> float:
        return round(_MARGIN + value / most * (right - _MARGIN), 1)

    def y(share: float) -> float:
        return round(bottom - share / 100 * (bottom - top), 1)

    shares = [step * 100 / _STEPS for step in range(_STEPS + 1)]
    line = " ".join(f"{x(percentile(values, share))},{y(share)}" for share in shares)
    marks = "".join(
        f'<line x1="{_MARGIN}" x2="{right}" y1="{y(share)}" y2="{y(share)}" stroke="#ddd"/>'
        f'<text x="{_MARGIN - 8}" y="{y(share) + 4}" text-anchor="end">{share} %</text>'
        f'<text x="{x(percentile(values, share)) + 6}" y="{y(share) + 14}">'
        f"{percentile(values, share):.1f}</text>"
        for share in (50, 90, 99)
    )
    return (
        f'{marks}<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        f'<line x1="{_MARGIN}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="#888"/>'
        f'<text x="{right}" y="{bottom + 18}" text-anchor="end">{most:.1f} ms</text>'
        f'<text x="{_MARGIN}" y="{bottom + 18}">{escape(name)}, ms</text>'
    )
