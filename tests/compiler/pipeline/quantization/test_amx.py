"""The CPU level with AMX: whole models, and which machines take it.

On a CPU without AMX its instructions are emulated (`amx_emulator`).
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mlcc.artifact.checks.host_check
from mlcc.artifact.folder import Artifact
from mlcc.device.reference import ops
from mlcc.errors import ArtifactError
from mlcc.loader import open_executor
from mlcc.util.machine import cpu_features
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, Target, get_target
from mlcc_targets import cpu as levels
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.helpers.batches import PagedSequences
from tests.helpers.emulators import amx_emulator

AMX = "avx512-amx"
STEPS = ({0: 40}, {0: 8, 1: 33}, {0: 1, 1: 1})
"""Tokens of sequences; all but the last are many."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Checkpoint:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint("llama", folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    return Checkpoint.open(folder)


def row_of(name: str) -> Target:
    return get_target("cpu", Choices(cpu=name))


def compiled(checkpoint: Checkpoint, target: Target, quant: str, folder: Path) -> Path:
    options = Options(quant=quant, context=64, max_batch=2, max_rows=48)
    return compile_model(checkpoint, target, folder / target.name, options, Progress())


def claim(patch: pytest.MonkeyPatch) -> None:
    """A CPU with AMX that the system allows."""
    everything = cpu_features() | {"amxtile", "amxbf16"}
    patch.setattr(mlcc.artifact.checks.host_check, "cpu_features", lambda: everything)
    if amx_emulator.emulated():
        patch.setattr(mlcc.artifact.checks.host_check, "allow_tiles", lambda: 0)


def logits(folder: Path) -> Any:
    executor = open_executor(Artifact.open(folder))
    rng = np.random.default_rng(3)
    paged = PagedSequences(executor, [rng.integers(3, 131, n).tolist() for n in (49, 34)])
    for step in STEPS:
        paged.step(step)
    return np.concatenate([paged.result(0), paged.result(1)])


def linear_of_bf16(x: Any, weight: Any, bias: Any = None) -> Any:
    """A linear as AMX computes it: x and the weight rounded to bfloat16."""
    x, weight = (each.astype(ml_dtypes.bfloat16).astype(np.float32) for each in (x, weight))
    return x @ weight.T


@pytest.mark.skipif(not amx_emulator.runs_here(), reason="needs Linux, and a CPU with AVX512-BF16")
@pytest.mark.parametrize("quant", ["bf16", "q4_g32"])
def test_models_err_no_more_than_weights_and_inputs_of_bf16(
    checkpoint: Checkpoint, quant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = compiled(checkpoint, get_target("reference"), quant, tmp_path)
    claim(monkeypatch)
    exact, library = logits(reference), compiled(checkpoint, row_of(AMX), quant, tmp_path)
    with amx_emulator.tiles() as counts:
        found = logits(library)
    assert counts.faults == 0 and counts.begun == counts.released
    assert counts.products > 100 or not counts.emulated
    monkeypatch.setattr(ops, "linear", linear_of_bf16)
    allowed = np.sqrt(np.mean((logits(reference) - exact) ** 2))
    assert np.sqrt(np.mean((found - exact) ** 2)) < 1.25 * allowed
    assert allowed < 0.05 * exact.std()


@pytest.mark.parametrize(
    ("vendor", "refused", "best"),
    [
        ("GenuineIntel", 0, AMX),
        ("GenuineIntel", errno.ENOSYS, "avx512-vbmi"),
        ("AuthenticAMD", errno.EPERM, "avx512-bf16"),
        ("", 0, AMX),
    ],
)
def test_a_machine_has_amx_where_the_system_allows_it(
    monkeypatch: pytest.MonkeyPatch, vendor: str, refused: int, best: str
) -> None:
    needs = levels.level(AMX).features
    monkeypatch.setattr(levels, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        levels, "cpu_features", lambda: frozenset(name.replace("-", "") for name in needs)
    )
    monkeypatch.setattr(levels, "cpu_vendor", lambda: vendor)
    monkeypatch.setattr(levels, "allow_tiles", lambda: refused)
    assert levels.host_level().name == best
    assert levels.ANY["x86_64"][0] == AMX


def test_a_folder_of_all_levels_runs_without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses tiles the next library is chosen."""
    row = get_target("cpu", Choices(cpu="any-x86-64"))
    everything = frozenset(name.replace("-", "") for name in row.features)
    checks = mlcc.artifact.checks.host_check
    monkeypatch.setattr(checks, "cpu_features", lambda: everything)
    monkeypatch.setattr(checks, "allow_tiles", lambda: errno.ENOSYS)
    with pytest.raises(ArtifactError, match=r"needs AMX, which .* does not let this process use"):
        checks._check_features(row)
    assert checks._check_features(row.alternatives[0]) == ()
