"""A compile for a row with a static library: its files, names and manifest.

With the CPU's kernels in place of the GPU's, which take long to generate, and float weights, whose
kernels are the smallest; nothing else differs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.small_library import inspect

pytestmark = pytest.mark.needs("llvm")


def test_the_artifact_holds_library_and_header_under_the_models_name(tmp_path: Path) -> None:
    row = replace(get_target("ios"), device="cpu", kernels="cpu", generator="", features=("neon",))
    source = write_checkpoint(tmp_path / "Tiny-Model.v1")
    out = compile_model(
        Checkpoint.open(source), row, tmp_path / "out", Options(quant="f32", context=64), Progress()
    )
    manifest = Manifest.from_bytes((out / MANIFEST_NAME).read_bytes())
    assert {"model.a", "mlcc_model.h"} <= {entry.path for entry in manifest.files}
    assert manifest.library.kind == "a"
    prefix = manifest.target.options["symbol_prefix"]
    assert prefix == "mlcc_tiny_model_v1_"
    header = (out / "mlcc_model.h").read_text()
    declared = re.findall(r"^extern .*?(\w+)(?:\[\])?;$", header, flags=re.MULTILINE)
    listed = inspect("llvm-nm", "-g", "--defined-only", "--format=just-symbols", out / "model.a")
    assert len(declared) == 2
    assert {f"_{name}" for name in declared} <= set(listed.split())
    assert f'"{prefix}"' in header
