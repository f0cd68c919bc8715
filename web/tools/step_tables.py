"""Writes `web/src/device/tables.ts`: the columns of a step's tables as TypeScript.

    python web/tools/step_tables.py

From `mlcc.engine.tables` and `adjust_tables`. Offsets are not here: they are a model's, and its
manifest has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlcc.engine import adjust_tables
from mlcc.engine.tables import (
    COPIES,
    FLOATS,
    HEADER,
    MOST_TOP_LOGPROBS,
    OF_GROUP,
    ROWS,
    SEQUENCES,
    TOKENS,
)

WIDTH = 100
OUT = Path(__file__).parents[1] / "src" / "device" / "tables.ts"
TEXT = """\
// Written by web/tools/step_tables.py from mlcc.engine.tables: change that and run it again.

/** The columns of a step's tables, in their order; a word each. What they mean is said there. */

"""


def render() -> str:
    """The whole file."""
    tables = {
        "HEADER": HEADER,
        "TOKENS": TOKENS,
        "SEQUENCES": SEQUENCES,
        "ROWS": ROWS,
        "COPIES": COPIES,
    }
    text = TEXT + "".join(constant(name, columns) for name, columns in tables.items())
    text += "/** Columns whose words are the bits of a float. */\n"
    text += f"export const FLOATS: readonly string[] = {array(sorted(FLOATS))};\n"
    text += (
        "/** What a cache group of a kind adds to tokens and sequences, followed by `.group`. */\n"
    )
    text += "export const OF_GROUP = {\n"
    for kind, (tokens, sequences) in OF_GROUP.items():
        text += f"  {kind}: {{ tokens: {array(tokens)}, sequences: {array(sequences)} }},\n"
    text += (
        "} as const;\n/** Of the buffer of a step's adjustments (`mlcc.engine.adjust_tables`). */\n"
    )
    text += constant("ADJUST_HEADER", adjust_tables.HEADER)
    text += "/** For which there is room in each row of what `top_logprobs` gives. */\n"
    return text + f"export const MOST_TOP_LOGPROBS = {MOST_TOP_LOGPROBS};\n"


def constant(name: str, columns: Iterable[str]) -> str:
    """A declaration, broken as the formatter does."""
    line = f"export const {name} = {array(columns)} as const;\n"
    if len(line) <= WIDTH + 1:
        return line
    lines = "".join(f"  {column!r},\n" for column in columns)
    return f"export const {name} = [\n{lines}] as const;\n"


def array(names: Iterable[str]) -> str:
    """A literal."""
    return f"[{', '.join(map(repr, names))}]"


if __name__ == "__main__":
    OUT.write_text(render(), encoding="utf-8")
    print(f"wrote {OUT}")
