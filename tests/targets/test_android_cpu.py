"""The rows of `android`, the files that a compile makes for them, and the choice of a library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mlcc.artifact.checks.host_check
from mlcc.artifact.checks.host_check import select_manifest
from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import ArtifactError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.kernels.cpu.kernel_set import kernels_of
from mlcc_compiler.options import Options
from mlcc_compiler.quantization.schemes import SCHEMES
from mlcc_targets import Choices, TargetError, get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.small_library import inspect

BOTH = ("arm64-v8a", "x86_64")
LIBRARIES = ("model.arm64-v8a-dotprod.so", "model.arm64-v8a.so", "model.x86_64.so")
BIONIC = {"memcpy", "memset", "memmove", "cosf", "sinf", "expf", "logf", "log", "exp", "powf"}
"""Functions of Android's libc and libm since its first 64-bit version (their symbol lists)."""


def test_the_best_library_of_each_abi_comes_first() -> None:
    row = get_target("android", Choices(abis=BOTH))
    assert [each.library for each in (row, *row.alternatives)] == list(LIBRARIES)
    assert [r.library for r in get_target("android").alternatives] == ["model.arm64-v8a.so"]
    gpu = get_target("android", Choices(abis=BOTH, gpu=True))
    assert [each.generator for each in (gpu, *gpu.alternatives)] == ["webgpu"] * 2


@pytest.mark.parametrize(
    ("target", "choices", "gist"),
    [
        ("android", Choices(abis=("armeabi-v7a",)), "no ABI 'armeabi-v7a'; use --abi"),
        ("android", Choices(cpu="arm"), "leave out --cpu arm"),
        ("android", Choices(f16=False), "leave out --no-f16"),
        ("cpu", Choices(abis=BOTH), "leave out --abi"),
        ("cpu", Choices(gpu=True), "leave out --gpu"),
    ],
)
def test_choices_that_a_row_has_not(target: str, choices: Choices, gist: str) -> None:
    with pytest.raises(TargetError, match=re.escape(gist)):
        get_target(target, choices)


@pytest.mark.parametrize("name", sorted(SCHEMES))
@pytest.mark.parametrize("use", ["matrix", "table", "experts"])
def test_all_cpus_read_the_same_bytes(name: str, use: str) -> None:
    """The CPUs of one artifact share one set of weights."""
    row = get_target("android", Choices(abis=BOTH))
    shape = (2, 24, 128) if use == "experts" else (24, 128)
    weight = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    sets = [kernels_of(each) for each in (row, *row.alternatives)]
    layouts = [kernels.layouts[use](kernels.device, shape, name) for kernels in sets]
    first, *others = ([array.tobytes() for array in layout.pack(weight)] for layout in layouts)
    assert others == [first, first]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("android")
    checkpoint = Checkpoint.open(write_checkpoint(folder / "model"))
    row = get_target("android", Choices(abis=BOTH))
    return compile_model(checkpoint, row, folder / "out", Options(context=64), Progress())


@pytest.mark.feature("q4", "android", "compiles")
@pytest.mark.needs("llvm")
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_asks_bionic_for_what_it_has(compiled: Path, name: str) -> None:
    library = compiled / name
    dynamic = inspect("llvm-readelf", "-d", library)
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) == ["libm.so", "libc.so"]
    table = inspect("llvm-readelf", "--dyn-syms", "-W", library)
    undefined = set(re.findall(r" UND (\S+)$", table, flags=re.MULTILINE))
    assert undefined <= BIONIC, undefined - BIONIC
    machine = "X86-64" if "x86_64" in name else "AArch64"
    assert re.search(rf"Machine:\s+.*{machine}", inspect("llvm-readelf", "-h", library))
    loads = re.findall(r"^\s+LOAD.* (0x\w+)$", inspect("llvm-readelf", "-lW", library), re.M)
    assert len(loads) > 1 and set(loads) == {"0x4000"}
    assert re.search(r"GNU_STACK .* RW ", inspect("llvm-readelf", "-lW", library))


def test_dot_products_are_in_the_variant_alone(compiled: Path) -> None:
    """sdot in its machine code: 0100 1110 100m mmmm 1001 01nn nnnd dddd."""
    words = [np.fromfile(compiled / n, np.uint8) for n in LIBRARIES[:2]]
    counts = [
        int(np.sum(w[: len(w) // 4 * 4].view("<u4") & 0xFFE0FC00 == 0x4E809400)) for w in words
    ]
    assert counts[0] > 10 and counts[1] == 0, counts


def manifests(folder: Path) -> Sequence[Manifest]:
    opened = Artifact.open(folder, host=False)
    assert opened.manifest == Manifest.from_bytes((folder / MANIFEST_NAME).read_bytes())
    return (opened.manifest, *opened.alternatives)


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(mlcc.artifact.checks.host_check, "system", lambda: "Android")
    return monkeypatch


@pytest.mark.parametrize(
    ("machine", "features", "library"),
    [
        ("aarch64", "fp asimd asimddp i8mm", LIBRARIES[0]),
        ("aarch64", "fp asimd", LIBRARIES[1]),
        ("x86_64", "sse2", LIBRARIES[2]),
    ],
)
def test_a_phone_takes_the_best_it_can_run(
    compiled: Path, phone: pytest.MonkeyPatch, machine: str, features: str, library: str
) -> None:
    phone.setattr(mlcc.artifact.checks.host_check, "machine", lambda: machine)
    phone.setattr(
        mlcc.artifact.checks.host_check, "cpu_features", lambda: frozenset(features.split())
    )
    artifact = Artifact.open(compiled)
    assert artifact.library_path.name == library and artifact.alternatives == ()
    assert artifact.weights().keys() == Artifact.open(compiled, host=False).weights().keys()


def test_another_abi_is_named(compiled: Path, phone: pytest.MonkeyPatch) -> None:
    phone.setattr(mlcc.artifact.checks.host_check, "machine", lambda: "x86_64")
    arm = manifests(compiled)[:2]
    with pytest.raises(ArtifactError, match=r"on arm64-v8a, this device has x86_64.*--abi"):
        select_manifest(arm)
    target = replace(arm[0].target, triple="x86_64-linux-gnu", arch="x86_64")
    linux = replace(arm[0], target=target)
    with pytest.raises(ArtifactError, match="x86_64 Android machine cannot run"):
        select_manifest([linux])


def test_a_desktop_refuses_it(compiled: Path) -> None:
    with pytest.raises(ArtifactError, match=r"\(target 'android'\), which this .* cannot run"):
        Artifact.open(compiled)
