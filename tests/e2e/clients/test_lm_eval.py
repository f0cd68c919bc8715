"""lm-evaluation-harness, unmodified, over /v1/completions: the log-likelihoods of its own backend
for transformers, for the same checkpoint in float32. Only with --long: it has an environment of its
own (`lm_eval.txt`)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server.serve import serving
from tests.e2e.clients.environments import ROOT, python

CHECKPOINT = ROOT / "examples" / "demo" / "model"
QUESTIONS = ("Once upon a time there was a", "What is 17 + 25?", "Write a story.", "The sky is")
ENDINGS = (
    " 42.",
    " little girl.",
    " blue and the sun was bright",
    " dog",
    " caf\u00e9 \u00fcber",
    " ",
)
NEAR = 1e-3
"""Most difference of a log-likelihood."""
TASK = {
    "task": "endings",
    "dataset_path": "json",
    "output_type": "multiple_choice",
    "test_split": "test",
    "doc_to_text": "{{question}}",
    "doc_to_target": "gold",
    "doc_to_choice": "choices",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task of 60 questions with four endings each."""
    folder, rng = tmp_path_factory.mktemp("tasks"), random.Random(5)
    rows = [
        {
            "question": rng.choice(QUESTIONS),
            "choices": rng.sample(ENDINGS, 4),
            "gold": rng.randrange(4),
        }
        for _ in range(60)
    ]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(data)}}}
    (folder / "endings.yaml").write_text(json.dumps(task))  # JSON is YAML
    return folder


def evaluate(tasks: Path, output: Path, model: str, arguments: str, batch: int) -> list[Any]:
    """For each question: (log-likelihood, whether it is the likeliest) of its endings, and the
    metrics."""
    command = [str(python("lm_eval", beside=True)), "-m", "lm_eval", "--tasks", "endings"]
    command += ["--include_path", str(tasks), "--log_samples", "--output_path", str(output)]
    command += ["--model", model, "--model_args", arguments, "--batch_size", str(batch)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tasks / "cache")}
    done = subprocess.run(
        command, env={**os.environ, **offline}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (samples,) = output.glob("**/samples_endings*.jsonl")
    found = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda s: s["doc_id"])
    return [(s["filtered_resps"], s["acc"], s["acc_norm"]) for s in found]


@pytest.fixture(scope="module")
def own(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the harness finds with transformers."""
    arguments = f"pretrained={CHECKPOINT},dtype=float32"
    return evaluate(tasks, tmp_path_factory.mktemp("hf"), "hf", arguments, 1)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of the same checkpoint in float32."""
    folder = tmp_path_factory.mktemp("f32") / "demo"
    mlcc = [sys.executable, "-m", "mlcc"]
    options = ["--quant", "f32", "--kv", "f32", "--cpu", "host", "-o", str(folder)]
    subprocess.run([*mlcc, "compile", str(CHECKPOINT), *options], check=True, timeout=600)
    command = [*mlcc, "serve", str(folder), "--port"]
    with serving(lambda port: [*command, str(port)]) as address:
        yield address


@pytest.mark.parametrize("batch", [1, 8])
def test_loglikelihoods_are_those_of_transformers(
    tasks: Path, own: list[Any], url: str, tmp_path: Path, batch: int
) -> None:
    arguments = f"model=demo,base_url={url}/v1/completions,tokenizer={CHECKPOINT}"
    found = evaluate(tasks, tmp_path, "local-completions", arguments, batch)
    assert len(found) == len(own) == 60
    for (answers, *metrics), (wanted, *right) in zip(found, own, strict=True):
        assert [str(likeliest) for _, likeliest in answers] == [str(each) for _, each in wanted]
        pairs = zip(answers, wanted, strict=True)
        assert all(abs(float(a[0]) - float(b[0])) <= NEAR for a, b in pairs)
        assert metrics == right
