"""Bar charts of a result of `cpu.py`, one panel for each measurement.

    PYTHON_WITH_MATPLOTLIB benchmarks/peers/plot.py RESULT.json PLOT.svg

Runs in the environment of `install.plotting`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot


def main() -> None:
    table = json.loads(Path(sys.argv[1]).read_text("utf-8"))["median"]
    names = [c for row in table.values() for c in row if c != "rounds" and "peer" not in c]
    cells = list(dict.fromkeys(names))
    columns = min(len(cells), 4)
    rows = -(-len(cells) // columns)
    axes: Any
    figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 2.6 * rows), squeeze=False)
    for panel, cell in zip(axes.flat, cells, strict=False):
        engines = [name for name, row in table.items() if cell in row]
        colours = ["tab:blue" if name.startswith("mlcc") else "tab:gray" for name in engines]
        panel.barh(engines[::-1], [table[n][cell] for n in engines[::-1]], color=colours[::-1])
        panel.set_title(f"{cell}, tokens a second", fontsize=9)
    for panel in axes.flat[len(cells) :]:
        panel.remove()
    figure.tight_layout()
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
