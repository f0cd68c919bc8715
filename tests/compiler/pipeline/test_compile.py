"""The compile command: reproducible bytes, dumps, refusals, and no files left after a failure."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from mlcc.cli import main
from mlcc_compiler.driver.display import Display
from tests.helpers import needs
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

PHASES = [
    "traced",
    "norms_fused",
    "projections_merged",
    "paged_kv",
    "gated_fused",
    "kernels",
    "kernels_joined",
    "functions",
    "fused",
]
PHASES += ["destination_passing", "memory_planned", "storages_by_size", "storages_bounded", "final"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


def words_of(arguments: tuple[object, ...]) -> list[str]:
    """The words after `mlcc`. `compile` makes one library for a CPU unless the arguments say
    otherwise; `test_any_cpu.py` makes several."""
    words = list(map(str, arguments))
    if words[0] == "compile" and not {"--target", "--cpu"} & set(words):
        words += ["--cpu", "host"]
    return words


def run(*arguments: object, seed: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run `mlcc ARGUMENTS` in a process; `seed` is PYTHONHASHSEED."""
    command = [sys.executable, "-m", "mlcc", *words_of(arguments)]
    env = os.environ if seed is None else {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def run_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Likewise in this process, which has loaded the compiler."""
    words, out, err = words_of(arguments), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.mark.parametrize(("target", "quant"), [("cpu", "q4"), ("vulkan", "f32")])
def test_compiles_in_fresh_processes_are_equal_to_the_byte(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, quant: str
) -> None:
    """The second one with an empty cache, so that no kernel of the first is taken."""
    needs.require_target(target)
    folders = [tmp_path / str(i) / "out" for i in range(2)]
    how = ["--target", target, "--quant", quant, "--context", 64, "-q"]
    how += ["--cpu", "host"] if target == "cpu" else []
    for seed, folder in enumerate(folders):
        if seed:
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        done = run("compile", checkpoint, "-o", folder, *how, seed=seed)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    first, second = map(contents, folders)
    assert {"mlcc.json", "model.so", "tokenizer.json"} <= set(first)
    assert any(name.endswith(".safetensors") for name in first)
    assert second == first


def test_decisions_are_printed_and_phases_dumped(checkpoint: Path, tmp_path: Path) -> None:
    dump = tmp_path / "ir"
    done = run_here(
        "compile", checkpoint, "-o", tmp_path / "out", "--quant", "f32", "--dump-ir", dump, "-v"
    )
    assert done.returncode == 0, done.stderr
    for word in (
        "model:",
        "target:",
        "quantization:",
        "f32",
        "context:",
        "KV cache:",
        "compiled in",
        *(f"lowering: {phase.replace('_', ' ')}\n" for phase in PHASES),
        *(f" packing weights {percent:3d} %" for percent in (0, 25, 50, 75, 100)),
    ):
        assert word in done.stderr
    assert done.stderr.count(" packing weights ") == 5 and "/s)\n" in done.stderr
    assert [p.name for p in sorted(dump.iterdir())] == [
        f"{i:02d}_{phase}.py" for i, phase in enumerate(PHASES)
    ]
    assert "mlcc.attention" in (dump / "00_traced.py").read_text()
    assert "call_tir_inplace" in (dump / "03_paged_kv.py").read_text()


def test_progress_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with Display("plain") as display:
        for phase in (*PHASES, "code"):
            display.phase(phase)
    doing = [line.split("s ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert doing == ["reading the model", "choosing kernels", "writing code"]


def test_the_wait_for_the_compiler_itself_is_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown if it takes long; what follows always is."""
    with Display("plain", patience=0.4) as display:
        display.step("loading the compiler")
        time.sleep(1.2)
    assert re.fullmatch(r" +\d+\.\d s loading the compiler\n", capsys.readouterr().err)
    with Display("plain", patience=60) as display:
        display.step("loading the compiler")
        display.progress().phase("traced")
    assert re.fullmatch(r" +\d+\.\d s reading the model\n", capsys.readouterr().err)


def test_progress_for_programs(checkpoint: Path, tmp_path: Path) -> None:
    """Each line of the standard error is an event; an error is one too, before its message."""
    command = ("compile", checkpoint, "--target", "reference", "--progress", "json", "-o")
    done = run(*command, tmp_path / "out")
    rows = [json.loads(line) for line in done.stderr.splitlines()]
    assert {row["event"] for row in rows} == {"note", "step", "done"}
    counted = [row for row in rows if row["event"] == "step" and "done" in row]
    assert counted[-1]["done"] == counted[-1]["total"] > 0
    assert rows[-1]["folder"] == f"{tmp_path}/out"
    failed = run_here(*command, tmp_path / "other", "--context", 10**6).stderr.splitlines()
    message = json.loads(failed[-2])["message"]
    assert failed[-1] == f"error: {message}"


def test_the_reference_dumps_its_graph_into_an_empty_folder(
    checkpoint: Path, tmp_path: Path
) -> None:
    command = ("compile", checkpoint, "--target", "reference", "--dump-ir", tmp_path / "ir", "-o")
    assert run_here(*command, tmp_path / "out").returncode == 0
    assert "mlcc.attention" in (tmp_path / "ir" / "00_traced.py").read_text()
    again = run_here(*command, tmp_path / "again")
    assert again.returncode == 2 and "give --dump-ir another one" in again.stderr
    assert not (tmp_path / "again").exists()


def test_the_head_can_be_stored_otherwise_and_bounds_be_chosen(
    checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    bounds = ("--max-batch", 2, "--max-step-tokens", 40, "--max-rows", 3)
    done = run_here("compile", checkpoint, "-o", out, "--quant", "q4_g16", "--head", "f16", *bounds)
    assert done.returncode == 0, done.stderr
    assert "q4_g16: int4_g16 (head f16)" in done.stderr
    manifest = json.loads((out / "mlcc.json").read_text())
    names = ("max_batch", "max_step_tokens", "max_rows")
    assert [manifest["limits"][name] for name in names] == [2, 40, 3]
    assert manifest["quantization"]["options"]["head"] == "f16"
    dtypes = {row["name"]: row["dtype"] for row in manifest["weights"]["tensors"]}
    assert dtypes["model.embed_tokens.weight"] == "float16"
    assert dtypes["model.layers.0.mlp.gate_proj+up_proj.weight.codes"] == "uint8"


@pytest.mark.parametrize(
    ("arguments", "gist"),
    [
        pytest.param(
            ["--target", "reference", "--f16"],
            "has no choice of float16",
            marks=pytest.mark.feature("f16-kv", "reference", "refused"),
        ),
        (["--target", "toaster"], "use one of: cpu, cuda"),
        (["--target", "reference", "--kv", "f16"], "has no float16 here; use --kv int8"),
        (["--kv", "int4"], "'int4' is not one of 'f16', 'f32', 'int8'"),
        (["--target", "reference", "--cpu", "avx2"], "has no CPU levels"),
        (["--cpu", "z80"], "unknown CPU level"),
        (["--quant", "q2"], "unknown quantization 'q2'"),
        (["--head", "q2"], "unknown scheme 'q2'"),
        (["--context", "100000"], "more than the model's"),
    ],
)
def test_refusals_are_one_line(
    checkpoint: Path, tmp_path: Path, arguments: list[str], gist: str, record_property: Any
) -> None:
    done = run_here("compile", checkpoint, "-o", tmp_path / "out", *arguments)
    assert done.returncode == 2
    refusal = done.stderr.splitlines()[-1]
    record_property("refusal", refusal.removeprefix("error: "))
    assert gist in refusal
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_architecture_lists_what_is_there(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    done = run_here("compile", folder, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "'mamba' is not supported" in done.stderr
    assert "llama" in done.stderr and "gemma3" in done.stderr


def test_wrong_tensors_are_all_named_before_any_work(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    changed = {"num_hidden_layers": 1, "intermediate_size": 160}
    (folder / "config.json").write_text(json.dumps(config | changed))
    done = run_here("compile", folder, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "extra" in done.stderr and "misshapen" in done.stderr
    assert "model.layers.1.mlp.up_proj.weight" in done.stderr
    assert not (tmp_path / "out").exists()


def test_targets_lists_every_row() -> None:
    done = run("targets", "--json")
    rows = json.loads(done.stdout)
    assert rows["cpu"]["compile"] == rows["cpu"]["run"] == ""
    assert "mlcc serve" in rows["webgpu"]["run"]
    assert set(rows) >= {"cpu", "cuda", "vulkan", "metal", "webgpu", "android", "ios", "reference"}


def test_a_missing_linker_is_reported_before_any_work(checkpoint: Path, tmp_path: Path) -> None:
    package = tmp_path / "modules" / "ziglang"  # found before the installed one, and empty
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    gist = "the linker is not installed; pip install ziglang=="

    def run_without(*arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        command = [sys.executable, "-m", "mlcc", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    rows = json.loads(run_without("targets", "--json").stdout)
    assert gist in rows["cpu"]["compile"] and rows["reference"]["compile"] == ""
    done = run_without("compile", checkpoint, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert gist in done.stderr and "model:" not in done.stderr
    assert list(tmp_path.iterdir()) == [package.parent]
