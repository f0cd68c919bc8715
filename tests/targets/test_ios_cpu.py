"""`mlcc compile --os ios`: static libraries of a CPU's kernels for iPhones and their simulator.

Inspected by object tools: nothing here can run one. The same archive for Linux is linked and run by
tests/runtime/device/test_linked.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact.folder import Artifact
from mlcc.errors import ArtifactError
from mlcc_compiler.cli import compile_command
from mlcc_targets import Choices, get_target
from mlcc_targets.linking.linker import run_zig
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.small_library import inspect

pytestmark = pytest.mark.needs("llvm")
LEVELS = ("arm-dotprod", "arm")
EXECUTORS = {
    f"_mlcc_executor_linked_{name}"
    for name in ("symbol", "raise", "launch", "barrier", "allocate", "free")
}
SYSTEM = {"_memset", "_memset_pattern16", "_memcpy", "_bzero", "_exp", "_log", "___sincosf_stret"}
"""Functions of libSystem that generated code may call."""
LIBRARY = "model.ios-arm-dotprod.a"
PREFIX = "mlcc_arm_dotprod_tiny_model_v1_"


def test_rows() -> None:
    row = get_target("cpu", Choices(cpu="any", systems=("ios", "ios-simulator")))
    rows = (row, *row.alternatives)
    assert [each.library for each in rows] == [
        f"model.{system}-{level}.a" for system in ("ios", "ios-simulator") for level in LEVELS
    ]
    assert [each.extra_files for each in rows[:1]] == [("mlcc_model.ios-arm-dotprod.h",)]
    assert len({each.symbol_prefix for each in rows}) == 2  # a program is for one of the systems
    one = get_target("cpu", Choices(cpu="arm", systems=("ios",)))
    assert (one.library, one.extra_files) == ("model.a", ("mlcc_model.h",))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for phones and the simulator, by the command."""
    folder = tmp_path_factory.mktemp("ios")
    checkpoint, out = write_checkpoint(folder / "Tiny-Model.v1"), folder / "out"
    words = [str(checkpoint), "--os", "ios,ios-simulator", "--cpu", "arm-dotprod"]
    words += ["--context", "64", "--quant", "q8", "--output", str(out)]
    done = CliRunner().invoke(compile_command, words)
    assert done.exit_code == 0, done.output
    return out


def names(library: Path, kind: str) -> set[str]:
    """Names that a library defines or leaves undefined."""
    listed = inspect("llvm-nm", "-g", f"--{kind}-only", "--format=just-symbols", library).split()
    return {name for name in listed if not name.endswith(":")}


@pytest.mark.parametrize("system, platform", [("ios", "ios"), ("ios-simulator", "iossimulator")])
def test_objects_are_for_their_system(compiled: Path, system: str, platform: str) -> None:
    library = compiled / f"model.{system}-arm-dotprod.a"
    headers = inspect("llvm-objdump", "-m", "--private-headers", library)
    found = set(re.findall(r"platform (\w+)\s+sdk \S+\s+minos (\S+)", headers))
    assert found == {(platform, "15.0")}
    assert headers.count("ARM64") == headers.count("MH_MAGIC_64") >= 3


def test_a_library_needs_the_executor_and_the_system(compiled: Path) -> None:
    library = compiled / LIBRARY
    needed = names(library, "undefined") - names(library, "defined")
    assert EXECUTORS <= needed <= EXECUTORS | SYSTEM, needed - EXECUTORS - SYSTEM
    assert re.search(r"\bsdot\b", inspect("llvm-objdump", "-d", "--mattr=+dotprod", library))


def test_the_header_links_the_library(compiled: Path, tmp_path: Path) -> None:
    """Its function compiles for the phone, and names what the library defines."""
    made, source = tmp_path / "app.o", tmp_path / "app.c"
    header = 'mlcc_model.ios-arm-dotprod.h"\nconst char *name(void) { return '
    source.write_text(f'#include "{header}{PREFIX}link(); }}\n', encoding="utf-8")
    words = ["cc", "-target", "aarch64-ios.15.0", "-fno-sanitize=all", "-c", str(source)]
    run_zig([*words, f"-I{compiled}", "-fno-stack-protector", "-o", str(made)], made)
    assert f"linked:{PREFIX}".encode() in made.read_bytes()
    declared = names(made, "undefined")
    assert len(declared) == 2
    assert declared <= names(compiled / LIBRARY, "defined")


def test_manifests_name_what_programs_link(compiled: Path) -> None:
    manifests = [compiled / "mlcc.json", *sorted(compiled.glob("mlcc.ios*.json"))]
    options = [json.loads(path.read_text())["target"]["options"] for path in manifests]
    assert [found["linked_prefix"] for found in options] == [PREFIX, PREFIX]
    assert len(list(compiled.glob("*.safetensors"))) == 1


def test_the_folder_does_not_open_here(compiled: Path) -> None:
    with pytest.raises(ArtifactError, match=r"compiled for arm64-apple-ios15\.0"):
        Artifact.open(compiled)
