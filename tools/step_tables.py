"""Writes the columns of a step's tables for the executors in TypeScript and C++.

    python -m tools.step_tables

From `mlcc.engine.batch.tables` and `adjust_tables` into `web/src/device/tables.ts` and
`runtime/native/src/model/columns.h`. Offsets of tables are not included: they depend on the model
and are in its manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from mlcc.engine.batch import adjust_tables
from mlcc.engine.batch.tables import (
    ADAPTED,
    ADAPTER,
    COPIES,
    FLOATS,
    HEADER,
    MOST_TOP_LOGPROBS,
    MTP,
    OF_GROUP,
    ROWS,
    SEQUENCES,
    TOKEN_COLUMNS,
    TOKENS,
)

ROOT = Path(__file__).parents[1]
WRITTEN = (
    "Written by tools/step_tables.py from mlcc.engine.batch.tables: change that and run it again."
)
TABLES = {
    "HEADER": HEADER,
    "TOKENS": TOKENS,
    "SEQUENCES": SEQUENCES,
    "ROWS": ROWS,
    "COPIES": COPIES,
}
ADJUST_TABLES = {
    "ADJUST_HEADER": adjust_tables.HEADER,
    "ADJUST_ROWS": adjust_tables.ROWS,
    "HISTORY": adjust_tables.HISTORY,
    "BIASES": adjust_tables.BIASES,
}


def typescript() -> str:
    """The contents of tables.ts."""
    text = f"""\
// {WRITTEN}

/** The columns of a step's tables, in their order; a word each. See there for their meaning. */

"""
    text += "".join(constant(name, columns) for name, columns in TABLES.items())
    text += "/** Columns whose words are the bits of a float. */\n"
    text += f"export const FLOATS: readonly string[] = {array(sorted(FLOATS))};\n"
    text += (
        "/** Columns of a cache group in tokens and sequences, by kind, with suffix `.group`. */\n"
    )
    text += "export const OF_GROUP = {\n"
    for kind, (tokens, sequences) in OF_GROUP.items():
        text += f"  {kind}: {{ tokens: {array(tokens)}, sequences: {array(sequences)} }},\n"
    text += "} as const;\n"
    text += "/** Header of a step's adjustments (`mlcc.engine.batch.adjust_tables`). */\n"
    text += constant("ADJUST_HEADER", adjust_tables.HEADER)
    text += "/** Width of a row of `top_logprobs`' results. */\n"
    return text + f"export const MOST_TOP_LOGPROBS = {MOST_TOP_LOGPROBS};\n"


def constant(name: str, columns: Iterable[str]) -> str:
    """A TypeScript constant."""
    return f"export const {name} = {array(columns)} as const;\n"


def array(names: Iterable[str]) -> str:
    """An array literal."""
    return f"[{', '.join(map(repr, names))}]"


def header() -> str:
    """The contents of columns.h."""
    text = f"""\
// {WRITTEN}
//
// The columns of a step's tables and of its adjustments, a word each, and the width of an entry.
// Those that a cache group adds are counted from the group's first column.
#ifndef MLCC_COLUMNS_H_
#define MLCC_COLUMNS_H_

namespace mlcc {{

"""
    tables = {**TABLES, **ADJUST_TABLES}
    for kind, columns in OF_GROUP.items():
        tables |= {f"{kind}_tokens": columns[0], f"{kind}_sequences": columns[1]}
    tables |= {"mtp_header": MTP, "adapted_header": ADAPTED, "adapter_sequences": ADAPTER}
    tables |= {"token_columns": TOKEN_COLUMNS}
    text += "".join(namespace(name.lower(), columns) for name, columns in tables.items())
    return (
        text
        + f"""
constexpr int kMostTopLogprobs = {MOST_TOP_LOGPROBS};
constexpr int kMaskBits = {adjust_tables.MASK_BITS};

}}  // namespace mlcc

#endif  // MLCC_COLUMNS_H_
"""
    )


def namespace(name: str, columns: Iterable[str]) -> str:
    """The columns of a table, on one line."""
    numbered = [f"{column} = {i}" for i, column in enumerate((*columns, "width"))]
    return f"namespace {name} {{ constexpr int {', '.join(numbered)}; }}\n"


FILES: dict[Path, Callable[[], str]] = {
    ROOT / "web" / "src" / "device" / "tables.ts": typescript,
    ROOT / "runtime" / "native" / "src" / "model" / "columns.h": header,
}
"""The written files and their contents."""

if __name__ == "__main__":
    for path, render in FILES.items():
        path.write_text(render(), encoding="utf-8")
        print(f"wrote {path}")
