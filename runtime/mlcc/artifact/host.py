"""May a library run on this machine? Compares a manifest with the ABI, system and CPU found here.

Reads versions from package metadata and features from the system; never imports tvm, never loads
the library. A fact that cannot be read is not held against the library: it becomes a note.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from mlcc.artifact.manifest import KERNEL_INTERFACE, Manifest, abi_hash
from mlcc.artifact.schema import TargetInfo
from mlcc.errors import ArtifactError
from mlcc.machine import cpu_features, machine, missing_features

_SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "macos": "Darwin", "windows": "Windows"}
_FOREIGN = ("android", "ios", "wasm", "emscripten")


def check_host(manifest: Manifest) -> tuple[str, ...]:
    """Raises ArtifactError if the library cannot run here; returns notes on what is unknown."""
    _check_system(manifest.target)
    _check_abi(manifest)
    return _check_features(manifest.target)


def _check_system(target: TargetInfo) -> None:
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(target.arch, target.arch)
    foreign = any(word in target.triple for word in _FOREIGN)
    system = next((name for word, name in _SYSTEMS.items() if word in target.triple), None)
    here = platform.system()
    if target.arch == "wasm32":
        raise ArtifactError(
            f"compiled for browsers (target '{target.name}'); type `mlcc serve` and its folder to "
            "open it in one, or compile for this machine with `mlcc compile`"
        )
    if foreign or (arch and arch != machine()) or (system and system != here):
        raise ArtifactError(
            f"compiled for {target.triple or target.arch} (target '{target.name}'), which this "
            f"{machine()} {here} machine cannot run; compile again here with `mlcc compile`"
        )


def _check_abi(manifest: Manifest) -> None:
    tvm, tvm_ffi = _installed("apache-tvm"), _installed("apache-tvm-ffi")
    if manifest.abi == abi_hash(tvm, tvm_ffi):
        return
    tools = manifest.tools
    advice = "compile the model again with `mlcc compile`"
    if (tools.tvm, tools.tvm_ffi) != (tvm, tvm_ffi):
        advice += f" or type `pip install apache-tvm=={tools.tvm} apache-tvm-ffi=={tools.tvm_ffi}`"
    raise ArtifactError(
        f"compiled for another ABI (mlcc {tools.mlcc}, tvm {tools.tvm}, tvm-ffi {tools.tvm_ffi}); "
        f"here are tvm {tvm}, tvm-ffi {tvm_ffi}, kernel interface {KERNEL_INTERFACE}: {advice}"
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ArtifactError(f"{package} is not installed; type `pip install mlcc`") from error


def _check_features(target: TargetInfo) -> tuple[str, ...]:
    present = cpu_features()
    if not target.features or not present:
        reason = f"the CPU's features cannot be read on {platform.system()}: not checked"
        return (reason,) if target.features else ()
    missing = missing_features(target.features, present)
    if missing:
        raise ArtifactError(
            f"needs a CPU with {', '.join(missing)}, which this one lacks; "
            "compile again here with `mlcc compile`, or for a lower level with --cpu"
        )
    return ()
