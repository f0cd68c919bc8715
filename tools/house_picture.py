"""Draws the folders of the Python packages in layers, from their imports: docs/internals/house.svg.

    python -m tools.house_picture [FILE]

A box is a folder (or a module at the root of a package), an arrow an import from the upper to the
lower one. A folder stands one layer above the highest folder that it imports. Arrows that follow
from others (A imports B, B imports C, A imports C) are left out, and so are small modules at the
roots and `mlcc/util`, which nearly all import.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "internals" / "house.svg"
PACKAGES = {
    "mlcc": ROOT / "runtime" / "mlcc",
    "mlcc_compiler": ROOT / "compiler" / "mlcc_compiler",
    "mlcc_targets": ROOT / "targets" / "mlcc_targets",
}
COLOURS = {"mlcc": "#dbe9f6", "mlcc_compiler": "#fbe5d0", "mlcc_targets": "#dff0d8"}
LEFT_OUT = {
    *("mlcc", "mlcc/__main__", "mlcc/errors", "mlcc/limits", "mlcc/model_argument", "mlcc/util"),
    *("mlcc/version", "mlcc_compiler", "mlcc_compiler/__main__", "mlcc_compiler/interrupts"),
}
"""`mlcc` and `mlcc_compiler` are the packages' own `__init__.py`."""
BOX_HEIGHT, ROW_HEIGHT, GAP, MARGIN, LETTER = 24, 60, 14, 16, 6.4

Graph = dict[str, set[str]]
"""Folder -> the folders that it imports."""


def folder_of(module: str) -> str:
    """`mlcc.engine.batch.tables` -> `mlcc/engine`; `mlcc.loader` -> `mlcc/loader`."""
    package, _, rest = module.partition(".")
    if package == "mlcc_targets":
        return package
    return f"{package}/{rest.split('.')[0]}" if rest else package


def imported(path: Path) -> Iterator[str]:
    """Names that a file imports at its top: lazy imports and those for types are left out."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from names if node.module in PACKAGES else (node.module,)


def graph() -> Graph:
    """Imports between folders. Of two folders that import each other, the commoner direction."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            own = folder_of(".".join((package, *(part for part in parts if part != "__init__"))))
            found[own].update(
                folder_of(name) for name in imported(path) if name.split(".")[0] in PACKAGES
            )
    kept = found.keys() - LEFT_OUT
    return {
        name: {
            to
            for to in found[name].keys() & kept
            if to != name and found[name][to] >= found[to][name]
        }
        for name in sorted(kept)
    }


def layers(imports: Graph) -> dict[str, int]:
    """Folder -> its layer, 0 the lowest. An import that closes a cycle does not raise a folder."""
    height: dict[str, int] = {}
    open_: set[str] = set()

    def visit(name: str) -> int:
        if name not in height:
            open_.add(name)
            below = [visit(to) for to in sorted(imports[name]) if to not in open_]
            open_.discard(name)
            height[name] = max(below, default=-1) + 1
        return height[name]

    for name in sorted(imports):
        visit(name)
    return height


def reduced(imports: Graph, height: dict[str, int]) -> list[tuple[str, str]]:
    """Imports from an upper to a lower layer that do not follow from others."""

    def reach(name: str, seen: set[str]) -> set[str]:
        for to in imports[name]:
            if to not in seen and height[to] < height[name]:
                seen.add(to)
                reach(to, seen)
        return seen

    edges = []
    for name, targets in imports.items():
        below = {to for to in targets if height[to] < height[name]}
        indirect = {far for to in below for far in reach(to, set())}
        edges += [(name, to) for to in sorted(below - indirect)]
    return edges


def places(height: dict[str, int], edges: list[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Folder -> the centre of its box: a column a package, a row a layer.

    Within a row boxes are ordered by the boxes below them.
    """
    rows: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name, level in height.items():
        rows[level, column(name)].append(name)
    widths = {key: sum(width(name) + GAP for name in row) for key, row in rows.items()}
    centre: dict[str, tuple[float, float]] = {}
    left: float = MARGIN
    for package in sorted({key[1] for key in rows}):
        whole = max(wide for key, wide in widths.items() if key[1] == package)
        for level, _ in sorted(key for key in rows if key[1] == package):

            def pull(name: str) -> float:
                below = [centre[to][0] for source, to in edges if source == name and to in centre]
                return sum(below) / len(below) if below else 0

            x = left + (whole - widths[level, package]) / 2
            for name in sorted(rows[level, package], key=pull):
                y = MARGIN + (max(height.values()) - level) * ROW_HEIGHT + BOX_HEIGHT / 2
                centre[name] = (x + width(name) / 2, y)
                x += width(name) + GAP
        left += whole + 3 * GAP
    return centre


def column(name: str) -> str:
    return "mlcc" if name.startswith("mlcc/") else "mlcc_compiler"


def width(name: str) -> float:
    return len(label(name)) * LETTER + 16


def label(name: str) -> str:
    return name.partition("/")[2] or name


def svg(imports: Graph) -> str:
    """The picture."""
    height = layers(imports)
    edges = reduced(imports, height)
    centre = places(height, edges)
    across = max(x + width(name) / 2 for name, (x, _) in centre.items()) + MARGIN
    down = max(y for _, y in centre.values()) + BOX_HEIGHT / 2 + MARGIN + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:.0f} {down:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0 6 3 0 6z" fill="#888"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for source, to in edges:
        (x1, y1), (x2, y2) = centre[source], centre[to]
        lines.append(
            f'<path d="M{x1:.0f} {y1 + BOX_HEIGHT / 2:.0f} {x2:.0f} {y2 - BOX_HEIGHT / 2:.0f}" '
            'stroke="#888" stroke-width=".7" marker-end="url(#a)"/>'
        )
    for name, (x, y) in sorted(centre.items()):
        colour = COLOURS[name.split("/")[0]]
        lines.append(
            f'<rect x="{x - width(name) / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" '
            f'width="{width(name):.0f}" height="{BOX_HEIGHT}" rx="3" fill="{colour}" '
            f'stroke="#666"/><text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">'
            f"{label(name)}</text>"
        )
    for index, (package, colour) in enumerate(COLOURS.items()):
        x, y = MARGIN + index * 130, down - MARGIN - 6
        lines.append(f'<rect x="{x}" y="{y - 9:.0f}" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 18}" y="{y + 1:.0f}">{package}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.house_picture", description=__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=PICTURE, help="the file to write")
    picture: Path = parser.parse_args().picture
    picture.write_text(svg(graph()), encoding="utf-8")
    print(picture)


if __name__ == "__main__":
    main()
