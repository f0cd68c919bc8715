"""`mlcc batch`: a file in, a file out; interrupted, it goes on; wrong, nothing is left."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.errors import BusyError, EngineDiedError
from mlcc.batches.local_batch import LocalBatch
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.local.caller import Caller
from mlcc.service.http.types import ApiRequest, ApiResponse, error_response
from tests.helpers.toy.toy_model import open_toy
from tests.runtime.server.helpers.server_process import eventually

NO_REPORT = lambda name, done, total, unit: None  # noqa: E731


def line(name: str, text: str = "hello", **more: Any) -> dict[str, Any]:
    body = {"model": "any", "prompt": text, "max_tokens": 6, "temperature": 0, **more}
    return {"custom_id": name, "url": "/v1/completions", "body": body}


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text().splitlines()]


class Counting:
    """Answers through a service, counts its requests, and fails on request."""

    def __init__(self, caller: Caller, fail: Callable[[int], MlccError | None]) -> None:
        self.prompts: list[str] = []
        self._caller, self._fail = caller, fail

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        assert request.background
        self.prompts.append(json.loads(await request.read())["prompt"])
        if (error := self._fail(len(self.prompts))) is not None:
            if type(error) is MlccError:  # not an answer: a fault of the host
                raise OSError(28, error.message)
            return error_response(error)
        return await self._caller.answer(request)


def run(
    batch: LocalBatch,
    fail: Callable[[int], MlccError | None] = lambda number: None,
    slots: int = 4,
) -> list[str]:
    """Run a batch on the toy. Returns the prompts in the order in which they were asked."""
    caller = Caller(open_toy)
    opened = batch.open(NO_REPORT)
    try:
        answer = Counting(caller, fail)
        caller.start(opened.run(answer, slots, NO_REPORT)).result(60)
        opened.write()
        return answer.prompts
    finally:
        opened.close()
        caller.close()


def test_answers_are_in_the_order_of_the_input_and_prefixes_run_together(tmp_path: Path) -> None:
    long = ["x" * 300 + f"{n}" for n in range(6)]
    other = ["y" * 300 + f"{n}" for n in range(6)]
    texts = [text for pair in zip(long, other, strict=True) for text in pair]
    source = write(tmp_path / "in", [line(f"{n}", text) for n, text in enumerate(texts)])
    batch = LocalBatch(source, tmp_path / "out", "toy")
    asked = run(batch, slots=1)
    assert asked in ([*long, *other], [*other, *long])
    assert [each["custom_id"] for each in read(batch.output)] == [f"{n}" for n in range(12)]
    assert all(each["response"]["status_code"] == 200 for each in read(batch.output))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_interrupted_batch_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [line(f"{n}", f"{n}") for n in range(20)])
    batch = LocalBatch(source, tmp_path / "out", "toy")
    with pytest.raises(OSError, match="no space"):
        run(batch, lambda number: MlccError("no space") if number == 8 else None, slots=1)
    assert not batch.output.exists() and batch.journal.exists()
    assert len(run(batch)) == 20 - 7
    assert [each["custom_id"] for each in read(batch.output)] == [f"{n}" for n in range(20)]


def test_what_passes_is_tried_again_and_what_stays_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcc.batches.runner._RETRY_S", (0.0, 0.0))
    monkeypatch.setattr("mlcc.batches.runner._BUSY_S", 0.0)
    batch = LocalBatch(write(tmp_path / "in", [line("a")]), tmp_path / "out", "toy")
    asked = run(batch, lambda number: BusyError("full") if number < 6 else None)
    assert len(asked) == 6 and read(batch.output)[0]["response"]["status_code"] == 200
    batch.output.unlink()
    asked = run(batch, lambda number: EngineDiedError("gone"))
    assert len(asked) == 3, "the line may be the cause"
    assert read(batch.output)[0]["response"]["status_code"] == 500


def test_a_journal_of_another_batch_is_not_taken(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [line("a")])
    batch = LocalBatch(source, tmp_path / "out", "toy")
    batch.open(NO_REPORT).close()
    with pytest.raises(InvalidRequestError, match="answers of the model toy"):
        LocalBatch(source, tmp_path / "out", "other").open(NO_REPORT)
    write(source, [line("b")])
    with pytest.raises(InvalidRequestError, match="answers of another input"):
        batch.open(NO_REPORT)


def test_errors_of_an_input_name_file_and_line_and_leave_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [line("a"), {"custom_id": "b"}, {"custom_id": ""}])
    with pytest.raises(InvalidRequestError, match=r"in, line 2: 'url' .* \(1 more lines"):
        LocalBatch(source, tmp_path / "out", "toy").open(NO_REPORT)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def mlcc(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlcc", "batch", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


@pytest.mark.feature("batches", "cpu", "runs")
def test_the_command_is_killed_and_goes_on(
    tmp_path: Path, compiled_demo: Callable[[str, str], Path]
) -> None:
    model, out = compiled_demo("q4", "cpu"), tmp_path / "out.jsonl"
    question = [{"role": "user", "content": "What is 17 + 25?"}]
    lines = [
        {
            "custom_id": f"{n}",
            "url": "/v1/chat/completions",
            "body": {"model": str(model), "messages": question, "temperature": 0, "seed": n},
        }
        for n in range(1600)
    ]
    source = write(tmp_path / "in.jsonl", lines)
    command = [sys.executable, "-m", "mlcc", "batch", str(model), str(source), "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    errors = process.stderr
    assert errors is not None
    assert eventually(lambda: re.search(r"answering \d{3}", errors.readline()) is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    done = mlcc(source, "-o", out)  # the lines name the model
    assert done.returncode == 0, done.stderr
    assert "of 1600 lines are answered already" in done.stderr
    assert f"1600 lines are answered: {out}" in done.stderr
    found = read(out)
    assert [each["custom_id"] for each in found] == [f"{n}" for n in range(1600)]
    contents = {each["response"]["body"]["choices"][0]["message"]["content"] for each in found}
    assert contents == {"17 + 25 = 42"}


def test_a_full_disk_is_named_and_nothing_is_lost(
    tmp_path: Path, compiled_demo: Callable[[str, str], Path]
) -> None:
    out = tmp_path / "out"
    source = write(tmp_path / "in", [line(f"{n}", max_tokens=64) for n in range(400)])
    words = (compiled_demo("q4", "cpu"), source, "-o", out)

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

    done = mlcc(*words, preexec_fn=bound)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "the answers cannot be written" in done.stderr and not out.exists()
    done = mlcc(*words)
    assert done.returncode == 0, done.stderr
    assert len(read(out)) == 400


def test_a_refused_line_is_reported_by_the_exit_code(
    tmp_path: Path, compiled_demo: Callable[[str, str], Path]
) -> None:
    source = write(tmp_path / "in", [line("good"), line("bad", temperature=-1)])
    done = mlcc(compiled_demo("q4", "cpu"), source, "-o", tmp_path / "out")
    assert done.returncode == 2 and "1 of 2 lines have an error" in done.stderr
    good, bad = read(tmp_path / "out")
    assert [each["response"]["status_code"] for each in (good, bad)] == [200, 400]


def test_what_cannot_work_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", [line("a", model=None)]), tmp_path / "out"
    for words, expected in (
        ((), "type `mlcc batch MODEL IN.jsonl -o OUT.jsonl`"),
        ((tmp_path / "none",), "there is no file"),
        ((source,), "names no model"),
        (("no/such", source), "no/such"),
    ):
        done = mlcc(*words, "-o", out)
        assert done.returncode and expected in done.stderr, done.stderr
    out.write_text("kept")
    done = mlcc("model", source, "-o", out)
    assert done.returncode and "--overwrite" in done.stderr and out.read_text() == "kept"
