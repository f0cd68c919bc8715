"""Data from texts: one JSON object of a fixed shape for each file, as CSV.

    python examples/extract/extract.py examples/extract/letters --model examples/demo/model

The JSON Schema holds the answer, so it always parses and has the right types.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mlcc import Engine

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"type": "string"},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}


def extract(engine: Engine, text: str) -> dict[str, Any]:
    """The person of whom a text speaks."""
    schema: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    answer = engine.chat.completions.create(
        messages=[{"role": "user", "content": f"As JSON: {text}"}],
        response_format=schema,
        temperature=0,
        max_tokens=60,
    )
    found: dict[str, Any] = json.loads(answer.choices[0].message.content)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    paths = sorted(args.folder.glob("*.txt"))
    table = csv.DictWriter(sys.stdout, ["file", *PERSON["properties"]])
    table.writeheader()
    with Engine(args.model) as engine, ThreadPoolExecutor(8) as threads:  # one batch of all
        texts = [" ".join(path.read_text(encoding="utf-8").split()) for path in paths]
        for path, person in zip(
            paths, threads.map(lambda t: extract(engine, t), texts), strict=True
        ):
            table.writerow({"file": path.name, **person})


if __name__ == "__main__":
    main()
