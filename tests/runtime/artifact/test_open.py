"""Opening a compiled model: a valid one opens, any other is refused in one clear line."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mlcc.artifact.checks.host_check
import mlcc.artifact.manifest
from mlcc.artifact.arrays import mapped
from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import KERNEL_INTERFACE
from mlcc.errors import ArtifactError
from mlcc.util.machine import cpu_features
from tests.runtime.artifact.small_artifact import WEIGHTS, make, rewrite, with_target


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sound") / "tiny")


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def refused(folder: Path, message: str, **options: bool) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        Artifact.open(folder, **options)
    assert "\n" not in caught.value.message and caught.value.message.startswith(str(folder))
    assert caught.value.exit_code == 2


def test_a_sound_artifact_opens(sound: Path) -> None:
    artifact = Artifact.open(sound)
    assert artifact.notes == () and artifact.library_path.read_bytes()[:4] == b"\x7fELF"
    assert artifact.tokenizer_path == sound / "tokenizer.json"
    assert artifact.chat_template == "{{ messages }}"
    assert artifact.chat_templates["tool_use"] == "{{ é }}"
    assert artifact.generation_config == {"temperature": 0.5}
    assert artifact.licence_path == sound / "LICENSE"


def test_weights_come_mapped_aligned_and_in_order(sound: Path) -> None:
    weights = mapped(Artifact.open(sound).weights())
    assert list(weights) == list(WEIGHTS)
    for name, array in weights.items():
        assert np.array_equal(array, WEIGHTS[name]) and array.dtype == WEIGHTS[name].dtype
        assert array.ctypes.data % 64 == 0
    weights["a"][:] = 9
    assert np.array_equal(mapped(Artifact.open(sound).weights())["a"], WEIGHTS["a"])


def test_bfloat16_weights_come_as_bits(tmp_path: Path) -> None:
    values = np.array([1.5, -2], ml_dtypes.bfloat16)
    found = mapped(Artifact.open(make(tmp_path / "x", {"w": values})).weights())["w"]
    assert found.dtype == np.uint16 and np.array_equal(found.view(ml_dtypes.bfloat16), values)


def test_every_flipped_byte_of_every_file_is_seen(copy: Path) -> None:
    for path in sorted(p for p in copy.rglob("*") if p.is_file() and p.name != "mlcc.json"):
        data = path.read_bytes()
        for place in {0, len(data) // 2, len(data) - 1}:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            refused(copy, f"{path.name} is damaged in bytes 0 to {len(data)}; copy the folder")
        path.write_bytes(data)
    Artifact.open(copy)


def test_a_flipped_byte_of_the_manifest(copy: Path) -> None:
    data = bytearray((copy / "mlcc.json").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "mlcc.json").write_bytes(bytes(data))
    refused(copy, r"mlcc\.json is damaged", verify=False)


def test_damage_is_placed_within_a_large_file(tmp_path: Path) -> None:
    folder = make(tmp_path / "large", {"w": np.zeros(17 << 20, np.uint8)})
    with (folder / "weights-00001-of-00001.safetensors").open("r+b") as file:
        file.seek(9 << 20)
        file.write(b"x")
    refused(folder, "damaged in bytes 8388608 to 16777216")


def test_a_damaged_header_of_weights_is_named_with_its_folder(copy: Path) -> None:
    """Whose hashes were not checked."""
    with (copy / "weights-00001-of-00001.safetensors").open("r+b") as file:
        file.seek(8)
        file.write(b"[")
    artifact = Artifact.open(copy, verify=False)
    with pytest.raises(
        ArtifactError, match=r"its header is not JSON.*; compile the model"
    ) as caught:
        artifact.weights()
    assert caught.value.message.startswith(f"{copy}: weights-00001-of-00001.safetensors: ")


@pytest.mark.parametrize("name", ["weights-00001-of-00001.safetensors", "model.so"])
def test_truncated_longer_and_missing_files(copy: Path, name: str) -> None:
    path = copy / name
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    refused(copy, rf"{name} is truncated \({len(data) - 1} of {len(data)} bytes\)", verify=False)
    path.write_bytes(data + b"x")
    refused(copy, f"{name} is too long", verify=False)
    path.unlink()
    refused(copy, f"{name} is missing; copy the folder again", verify=False)
    path.mkdir()
    refused(copy, f"{name} is missing", verify=False)


def test_no_artifact(tmp_path: Path, copy: Path) -> None:
    refused(tmp_path / "none", "no such folder; make one with `mlcc compile MODEL`")
    refused(copy / "mlcc.json", "not a compiled model")
    (copy / "mlcc.json").unlink()
    refused(copy, r"not a compiled model \(it has no mlcc.json\)")
    (copy / "config.json").touch()
    refused(copy, "compile it with `mlcc compile`")


def test_a_huge_manifest_is_not_read(copy: Path) -> None:
    os.truncate(copy / "mlcc.json", 1 << 40)
    refused(copy, "larger than 64 MiB")


@pytest.mark.parametrize("name", ["model.so", "mlcc.json"])
def test_a_link_that_leaves_the_folder(copy: Path, tmp_path: Path, name: str) -> None:
    shutil.move(copy / name, tmp_path / name)
    (copy / name).symlink_to(tmp_path / name)
    refused(copy, f"{name} is a link that leaves the folder")


def test_a_link_within_the_folder_and_to_it(copy: Path, tmp_path: Path) -> None:
    (copy / "model.so").rename(copy / "real.so")
    (copy / "model.so").symlink_to("real.so")
    (tmp_path / "link").symlink_to(copy)
    Artifact.open(tmp_path / "link")


def test_a_path_that_leaves_the_folder(copy: Path) -> None:
    def outside(m: mlcc.artifact.manifest.Manifest) -> mlcc.artifact.manifest.Manifest:
        files = tuple(replace(f, path=f"../{f.path}") for f in m.files)
        return replace(m, files=files)

    refused(rewrite(copy, outside), "unsafe path '../LICENSE'")


def test_a_foreign_abi(copy: Path) -> None:
    def foreign(m: mlcc.artifact.manifest.Manifest) -> mlcc.artifact.manifest.Manifest:
        return replace(m, abi="0" * 16, tools=replace(m.tools, tvm="0.99"))

    again = "compile the model again with `mlcc compile`"
    refused(rewrite(copy, foreign), rf"another ABI \(.*tvm 0\.99.*: {again}$")
    rewrite(copy, with_target(device="cuda"))
    refused(copy, rf"another ABI \(.*: {again} or type `pip install apache-tvm==0\.99")
    assert Artifact.open(copy, host=False).manifest.tools.tvm == "0.99"


def test_another_kernel_interface(copy: Path) -> None:
    rewrite(copy, lambda m: replace(m, abi="0" * 16))
    here = f"kernel interface {KERNEL_INTERFACE}"
    refused(copy, f"{here}: compile the model again with `mlcc compile`$")


def test_metal_needs_tvm_and_what_the_executor_runs_none(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    Artifact.open(copy)
    Artifact.open(rewrite(copy, with_target(device="webgpu")))
    rewrite(copy, with_target(device="metal"))
    refused(copy, r"tvm is here without its metadata; copy apache_tvm-VERSION.dist-info beside it")
    monkeypatch.setattr(mlcc.artifact.checks.host_check, "is_here", lambda package: False)
    refused(copy, r'apache-tvm, which is not installed; type `pip install "mlcc\[metal\]"`')


def test_a_cpu_without_the_features(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(copy, with_target(features=("avx2", "avx512vnni", "amx-int8")))
    monkeypatch.setattr(
        mlcc.artifact.checks.host_check, "cpu_features", lambda: frozenset({"avx2", "avx512vnni"})
    )
    refused(copy, "needs a CPU with amx-int8, which this one lacks; .*--cpu any")
    monkeypatch.setattr(mlcc.artifact.checks.host_check, "cpu_features", lambda: frozenset())
    assert "not checked" in Artifact.open(copy).notes[0]


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or "amxtile" in cpu_features(),
    reason="needs a Linux without AMX's tiles",
)
def test_a_system_that_does_not_let_tiles_be_used(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check calls Linux, whatever the CPU's features are."""
    rewrite(copy, with_target(features=("amx-tile",)))
    monkeypatch.setattr(
        mlcc.artifact.checks.host_check, "cpu_features", lambda: frozenset({"amxtile"})
    )
    refused(copy, r"needs AMX, which Linux does not let this process use \(.*5.16.*--cpu any")


@pytest.mark.parametrize(
    ("features", "refusal", "opens"),
    [(("amx-tile",), 0, True), (("amx-tile",), 1, False), (("avx2",), 1, True)],
)
def test_tiles_are_asked_for_by_libraries_that_use_them(
    copy: Path,
    monkeypatch: pytest.MonkeyPatch,
    features: tuple[str, ...],
    refusal: int,
    opens: bool,
) -> None:
    checks = mlcc.artifact.checks.host_check
    rewrite(copy, with_target(features=features))
    monkeypatch.setattr(checks, "cpu_features", lambda: frozenset({"amxtile", "avx2"}))
    monkeypatch.setattr(checks, "allow_tiles", lambda: refusal)
    if opens:
        Artifact.open(copy)
    else:
        refused(copy, r"needs AMX, which Linux does not .* \(Operation not permitted\)")


@pytest.mark.parametrize(
    ("arch", "triple", "device"),
    [
        ("riscv64", "riscv64-linux-gnu", "cpu"),
        ("aarch64", "aarch64-linux-android", "vulkan"),
        ("", "arm64-apple-ios15.0", "metal"),
        ("", "x86_64-windows-msvc", "cpu"),
    ],
)
def test_another_machine(copy: Path, arch: str, triple: str, device: str) -> None:
    rewrite(copy, with_target(arch=arch, triple=triple, device=device))
    refused(copy, f"compiled for {triple} .* cannot run; compile again here")


def test_a_library_for_browsers(copy: Path) -> None:
    rewrite(copy, with_target(arch="wasm32", triple="wasm32-unknown-unknown-wasm", name="webgpu"))
    refused(copy, "compiled for browsers .*`mlcc serve`")


def test_a_shard_that_is_not_what_the_manifest_says(copy: Path) -> None:
    def other(m: mlcc.artifact.manifest.Manifest) -> mlcc.artifact.manifest.Manifest:
        first, *rest = m.weights.tensors
        return replace(m, weights=replace(m.weights, tensors=(replace(first, shape=(6,)), *rest)))

    artifact = Artifact.open(rewrite(copy, other))
    with pytest.raises(ArtifactError, match=r"holds float32 \[2, 3\] as a, the manifest says"):
        artifact.weights()


def test_no_tokenizer_and_no_defaults(tmp_path: Path, copy: Path) -> None:
    rewrite(copy, lambda m: replace(m, files=tuple(f for f in m.files if "json" not in f.path)))
    artifact = Artifact.open(copy)
    assert artifact.generation_config == {}
    with pytest.raises(ArtifactError, match=r"has no tokenizer\.json; compile the model again"):
        artifact.tokenizer_path  # noqa: B018
