"""The demo model in a Python program: `from mlcc import Engine`, several threads at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mlcc import Engine
from tests.e2e.demo.conftest import Compiled
from tests.helpers.demo_model import DEMO


def test_threads_and_a_left_stream(compiled: Compiled) -> None:
    """Greedy f32 answers are the same alone and together; most are right."""
    lines = (DEMO / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:: len(lines) // 8]][:8]
    with Engine(compiled("f32", "cpu"), max_batch=4) as engine:

        def ask(row: dict[str, Any]) -> str:
            answer = engine.chat.completions.create(
                messages=row["messages"], temperature=0, max_tokens=40
            )
            text: str = answer.choices[0].message.content
            return text

        alone = [ask(row) for row in rows]
        left = engine.chat.completions.create(messages=rows[0]["messages"], stream=True)
        assert next(left).object == "chat.completion.chunk"
        del left
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(ask, rows))
    assert sum(a == b for a, b in zip(alone, together, strict=True)) >= 7  # but for a tie
    assert sum(text.strip() == row["answer"] for text, row in zip(alone, rows, strict=True)) >= 6
