"""The gain of calibration for the demo model, measured by `mlcc eval`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mlcc.commands.evaluate import eval_command
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc_compiler.calibration.text import (
    DEFAULT,
    MAX_ROWS,
    RANDOM_TOKENS,
    calibration_text,
    random_rows,
    text_rows,
)
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import NOTHING, RANDOM, Options
from mlcc_targets import Choices, get_target

DEMO = Path(__file__).parents[3] / "examples" / "demo"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(text to calibrate on, JSON lines to score), of different conversations."""
    folder = tmp_path_factory.mktemp("texts")
    lines = (DEMO / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "text.txt").write_text("\n".join(json.loads(row)["text"] for row in lines[20:36]))
    (folder / "score.jsonl").write_text("\n".join(lines[:6]) + "\n")
    return folder / "text.txt", folder / "score.jsonl"


def evaluated(*arguments: object) -> Any:
    done = CliRunner().invoke(
        eval_command, ["--json", *map(str, arguments)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.feature("calibrated", "cpu", "runs")
def test_calibrated_weights_are_nearer_to_the_model(
    texts: tuple[Path, Path], tmp_path: Path, compiled_demo: Callable[[str, str], Path]
) -> None:
    text, score = texts
    decisions: list[tuple[str, str]] = []
    row = get_target("cpu", Choices(cpu="host"))
    options = Options(quant="q3", context=1024, calibrate=str(text))
    progress = Progress(decided=lambda what, value: decisions.append((what, value)))
    calibrated = compile_model(
        Checkpoint.open(DEMO / "model"), row, tmp_path / "calibrated", options, progress
    )
    assert any(what == "calibration" and "text.txt" in value for what, value in decisions)
    exact, plain = compiled_demo("f32", "cpu"), compiled_demo("q3", "cpu")
    plot = tmp_path / "plot.svg"
    drawn = ("--plot", plot) if _has_matplotlib() else ()
    rows = evaluated("--compare", plain, calibrated, "--text", score, "--against", exact, *drawn)
    without, with_text = (row["divergence"] for row in rows)
    # Of what sizes of inputs leave; the damping, which is for texts of other domains, costs some of
    # what 16 texts tell.
    assert with_text["kl"] < 0.75 * without["kl"]
    assert with_text["tokens"] == without["tokens"] > 300
    assert without["reference_perplexity"] <= without["perplexity"]
    # The recipe's bits, given where the text says, as far as whole matrices go.
    assert rows[0]["bits"] - 0.05 < rows[1]["bits"] <= rows[0]["bits"] < 4.1
    assert rows[0]["table_bits"] == rows[1]["table_bits"] == 8.5
    assert not drawn or plot.read_text().count("<svg") == 1


@pytest.mark.feature("sized", "cpu", "runs")
def test_sizes_that_random_tokens_show_help_without_a_text(
    texts: tuple[Path, Path], tmp_path: Path, compiled_demo: Callable[[str, str], Path]
) -> None:
    """Every compile calibrates, with equal results each time; `none` switches it off."""
    _, score = texts
    made = {how: _compiled(tmp_path / str(how), how) for how in (None, RANDOM, NOTHING)}
    shards = {
        how: b"".join(path.read_bytes() for path in sorted(out.glob("*.safetensors")))
        for how, out in made.items()
    }
    assert b"" != shards[None] == shards[RANDOM] != shards[NOTHING]
    manifests = {how: json.loads((out / "mlcc.json").read_text()) for how, out in made.items()}
    recorded = {how: m["quantization"]["options"].get("calibrated") for how, m in manifests.items()}
    assert recorded == {None: "random", RANDOM: "random", NOTHING: None}
    exact = compiled_demo("f32", "cpu")
    without, with_sizes = (
        evaluated(made[how], "--text", score, "--against", exact) for how in (NOTHING, None)
    )
    assert with_sizes["kl"] < without["kl"]


def _compiled(out: Path, calibrate: str | None) -> Path:
    options = Options(quant="q3", context=1024, calibrate=calibrate)
    row = get_target("cpu", Choices(cpu="host"))
    return compile_model(Checkpoint.open(DEMO / "model"), row, out, options, Progress())


def test_random_rows_are_always_the_same_and_begin_as_texts_do() -> None:
    tokenizer = FileTokenizer(DEMO / "model" / "tokenizer.json")
    rows = random_rows(300, tokenizer, 4096)
    assert rows == random_rows(300, tokenizer, 4096)
    assert {len(row) for row in rows} == {RANDOM_TOKENS} and min(map(min, rows)) >= 0
    assert max(map(max, rows)) < 300 and rows[0] != rows[1]
    begin = list(tokenizer.encode("", add_special_tokens=True))[:1]
    assert all(row[: len(begin)] == begin for row in rows)


def test_a_model_is_no_distance_from_itself(
    texts: tuple[Path, Path], compiled_demo: Callable[[str, str], Path]
) -> None:
    _, score = texts
    exact = compiled_demo("f32", "cpu")
    found = evaluated(exact, "--text", score, "--against", exact)
    assert found["kl"] < 1e-6 and found["top1"] == 1
    assert found["perplexity"] == pytest.approx(found["reference_perplexity"])
    alone = evaluated(exact, "--text", score)
    assert alone["perplexity"] == pytest.approx(found["perplexity"], rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "gist"),
    [
        (["--against", "x"], "give --text"),
        (["--plot", "x.svg"], "give both"),
        (["--compare", "--tasks", str(DEMO / "heldout.jsonl")], "no --tasks"),
        (["a", "b", "--text", str(DEMO / "heldout.jsonl")], "several with --compare"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: list[str], gist: str) -> None:
    done = CliRunner().invoke(eval_command, arguments)
    assert isinstance(done.exception, InvalidRequestError) and gist in done.exception.message


def test_the_text_is_sampled_evenly_and_begins_as_the_tokenizer_does() -> None:
    tokenizer = FileTokenizer(DEMO / "model" / "tokenizer.json")
    text = calibration_text(DEFAULT)
    rows = text_rows(text, tokenizer, 128)
    assert len(rows) == MAX_ROWS and max(map(len, rows)) <= 128
    assert len({tuple(row) for row in rows}) == MAX_ROWS
    begin = list(tokenizer.encode("", add_special_tokens=True))[:1]
    assert all(row[: len(begin)] == begin for row in rows)


def test_a_text_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    tokenizer = FileTokenizer(DEMO / "model" / "tokenizer.json")
    with pytest.raises(UnsupportedError, match="give one of some thousands"):
        text_rows("short", tokenizer, 128)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnsupportedError, match="cannot be read as UTF-8"):
        calibration_text(str(tmp_path / "binary"))
    with pytest.raises(UnsupportedError, match="cannot be read"):
        calibration_text(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("options", "gist"),
    [
        (Options(quant="q8", calibrate=DEFAULT), "nothing to do for --quant q8"),
        (Options(quant="q4", calibrate=DEFAULT, reuse_weights=Path()), "as they are"),
        (Options(quant="q4_g32", calibrate=RANDOM), "nothing to do for --quant q4_g32"),
    ],
)
def test_calibration_that_could_do_nothing_is_refused(
    options: Options, gist: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=gist):
        compile_model(
            Checkpoint.open(DEMO / "model"), get_target("cpu"), tmp_path / "x", options, Progress()
        )


def _has_matplotlib() -> bool:
    from mlcc.util.extras import is_here

    return is_here("matplotlib")
