"""Steps packed by the engine's own writer: JSON on standard output, for `batch.test.ts`.

Tables, the page size, and of each step its input (as `batch.ts` takes it) and its output: words in
use as base64, and sizes.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from mlcc.artifact.records import to_plain
from mlcc.artifact.schema import tables_of
from mlcc.engine.batch.batch import BatchWriter, PageList, RowSampling, int32
from mlcc.engine.batch.tables import CacheGroup, StepLayout

PAGE_SIZE = 16
LAYOUT = StepLayout.of(
    [CacheGroup("paged", PAGE_SIZE)],
    context=256,
    max_tokens=64,
    max_sequences=4,
    max_rows=6,
    max_copies=4,
)
HOT = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "uniform": 0.999}
PROMPT = {"ids": list(range(5, 40)), "start": 0, "pages": [7, 3, 9, 30]}
STEPS: list[dict[str, Any]] = [
    {"rows": [PROMPT], "copies": []},
    {
        "rows": [
            {"ids": [-2], "start": 32, "pages": [1, 2, 4], "sampling": HOT},
            {"ids": [11, 12, 13], "start": 15, "pages": [6, 5], "sample": False},
            {"ids": [-1], "start": 47, "pages": [12, 11, 10]},
        ],
        "copies": [{"group": 0, "source": 3, "destination": 8}],
    },
    {"rows": [{**PROMPT, "sample": False}], "copies": []},
]


def packed(step: dict[str, Any]) -> dict[str, Any]:
    """A step with its words and sizes."""
    used = [
        row["pages"][: -(-(row["start"] + len(row["ids"])) // PAGE_SIZE)] for row in step["rows"]
    ]
    writer = BatchWriter(LAYOUT)
    for row, pages in zip(step["rows"], used, strict=True):
        first = writer.sequence(row["ids"], row["start"], [PageList(int32(pages))])
        if row.get("sample", True):
            sampling = dict(row.get("sampling", {}))
            uniform = sampling.pop("uniform", 0.5)
            writer.row(first + len(row["ids"]) - 1, RowSampling(**sampling), uniform)
    for copy in step["copies"]:
        writer.copy(**copy)
    batch = writer.finish()
    words = base64.b64encode(batch.words[: batch.used_words]).decode()
    return {**step, "words": words, "sizes": batch.sizes}


if __name__ == "__main__":
    constants = {"tables": to_plain(tables_of(LAYOUT)), "page_size": PAGE_SIZE}
    print(json.dumps({**constants, "steps": list(map(packed, STEPS))}))
