"""The demo model solves its tasks at every precision, and all ways of running it agree."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from mlcc.commands.evaluate import eval_command
from mlcc.eval.evaluation import perplexity, read_rows, score_tasks
from tests.e2e.demo.conftest import Compiled, Opened
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.helpers.demo_model import DEMO

LOST_POINTS = {"f32": 0.0, "q8": 1.0, "q4": 5.0}
"""Accuracy that a recipe may lose against f32, in percentage points."""
LOGIT_BOUND = 1e-3
"""f32: how close two candidates' logits must be for a difference to count as a tie."""

SAMPLING = [
    pytest.param("cpu", 12, marks=pytest.mark.feature("sampling", "cpu", "runs")),
    pytest.param("vulkan-f32", 4, marks=pytest.mark.feature("sampling", "vulkan", "runs")),
]


TEXTS = 25
"""Held-out texts of a perplexity."""


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    """Every second row: eight or nine of each task."""
    return read_rows(DEMO / "eval.jsonl", ("task", "messages", "answer"))[::2]


@pytest.fixture(scope="session")
def report(
    compiled: Compiled, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The results of `mlcc eval` for q8."""
    folder = tmp_path_factory.mktemp("eval")
    lines = (DEMO / "heldout.jsonl").read_text(encoding="utf-8").splitlines()[:TEXTS]
    tasks, texts = folder / "tasks.jsonl", folder / "texts.jsonl"
    tasks.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    texts.write_text("\n".join(lines), encoding="utf-8")
    arguments = [str(compiled("q8", "cpu")), "--tasks", str(tasks), "--text", str(texts)]
    with redirect_stdout(StringIO()) as out:
        eval_command.main([*arguments, "--json"], standalone_mode=False)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


@pytest.fixture(scope="module")
def accuracy(
    opened: Opened, rows: list[dict[str, Any]], report: dict[str, Any]
) -> dict[str, float]:
    """Exact matches in percent per recipe."""
    scores = {q: score_tasks(opened(q, "cpu"), rows, lambda n: None) for q in ("f32", "q4")}
    shares = {q: score.accuracy for q, score in scores.items()} | {"q8": report["accuracy"]}
    return {q: 100 * share for q, share in shares.items()}


def test_the_repository_holds_at_most_10_mb_of_it() -> None:
    assert sum(p.stat().st_size for p in (DEMO / "model").iterdir()) <= 10_000_000


def test_f32_answers_nine_in_ten(accuracy: dict[str, float]) -> None:
    assert accuracy["f32"] >= 90


@pytest.mark.parametrize("quant", ["q8", "q4"])
def test_quantization_costs_little(accuracy: dict[str, float], quant: str) -> None:
    assert accuracy[quant] >= accuracy["f32"] - LOST_POINTS[quant]


def test_perplexity_grows_little(opened: Opened) -> None:
    texts = [row["text"] for row in read_rows(DEMO / "heldout.jsonl", ("text",))][:TEXTS]
    found = {
        q: perplexity(opened(q, "cpu"), texts, lambda n: None, pytest.fail) for q in LOST_POINTS
    }
    assert found["f32"] < 3
    assert abs(found["q8"] / found["f32"] - 1) < 0.01
    assert found["q4"] / found["f32"] < 1.05


def test_native_answers_as_the_reference(
    opened: Opened, rows: list[dict[str, Any]], record_property: Any
) -> None:
    native, reference = opened("f32", "cpu"), opened("f32", "reference")
    chosen = rows[:: len(rows) // 25][:25]
    prompts = [native.text.encode_chat(row["messages"]) for row in chosen]
    a, b = (greedy_tokens(model, prompts, 24) for model in (native, reference))
    answers = zip(prompts, a, b, strict=True)
    ties = sum(compare(reference, *triple, LOGIT_BOUND) for triple in answers)
    record_property("ties", ties)
    assert ties <= 1


@pytest.mark.feature("sampling", "reference", "runs")
@pytest.mark.parametrize(("target", "prompts"), SAMPLING)
def test_sampling_is_the_same_on_reference_and_native(
    opened: Opened, rows: list[dict[str, Any]], target: str, prompts: int
) -> None:
    """A seed gives equal text; rarely, a draw falls between two roundings."""
    from mlcc.model.session import Session

    fields = {"temperature": 1.0, "top_p": 0.9, "seed": 11, "max_tokens": 12}
    answers = [
        ["".join(Session(opened("f32", t)).chat(row["messages"], fields)) for row in rows[:prompts]]
        for t in (target, "reference")
    ]
    same = sum(a == b for a, b in zip(*answers, strict=True))
    assert same >= prompts - 1


def test_eval_command_reports(report: dict[str, Any]) -> None:
    assert report["accuracy"] > 0.5
    assert sum(row["of"] for row in report["tasks"].values()) >= 250
    assert 1 < report["perplexity"] < 3
