"""Checks whether a library runs on this machine: ABI, operating system and CPU features.

Libraries run in libmlcc_executor, which has TVM inside; those for CUDA and Metal use the installed
TVM packages, whose versions are read from their metadata. Never imports tvm or loads the library.
What cannot be determined becomes a note, not a refusal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mlcc.artifact.manifest import KERNEL_INTERFACE, Manifest, abi_hash
from mlcc.artifact.schema import TargetInfo
from mlcc.errors import ArtifactError
from mlcc.util.extras import OF_DEVICE, advice, is_here
from mlcc.util.machine import (
    ABIS,
    IOS,
    SIMULATOR,
    allow_tiles,
    cpu_features,
    machine,
    missing_features,
    system,
)
from mlcc.version import TVM, TVM_FFI

_SYSTEMS = {  # a word of a triple -> the system; Android's triples have "linux" too
    "android": "Android", "simulator": SIMULATOR, "ios": IOS, "linux": "Linux",
    "darwin": "Darwin", "macos": "Darwin", "windows": "Windows",
}  # fmt: skip


def select_manifest(manifests: Iterable[Manifest]) -> tuple[Manifest, tuple[str, ...]]:
    """The first (best) manifest whose library runs here, and notes on what is unknown. Later ones
    are not read.

    Raises ArtifactError with the requirement of the last one for this system, which needs the
    least; or of the last one.
    """
    refusal = ArtifactError("has no library; compile the model again with `mlcc compile`")
    found_own = False
    for manifest in manifests:
        try:
            return manifest, check_host(manifest)
        except ArtifactError as error:
            own = _is_for_this_system(manifest.target)
            if own or not found_own:
                refusal, found_own = error, own
    raise refusal


def _is_for_this_system(target: TargetInfo) -> bool:
    try:
        _check_system(target)
    except ArtifactError:
        return False
    return True


def check_host(manifest: Manifest) -> tuple[str, ...]:
    """Raises ArtifactError if the library cannot run here; returns notes on what is unknown."""
    _check_system(manifest.target)
    _check_abi(manifest)
    return _check_features(manifest.target)


def _check_system(target: TargetInfo) -> None:
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(target.arch, target.arch)
    its = next((name for word, name in _SYSTEMS.items() if word in target.triple), None)
    here = system()
    if target.arch == "wasm32":
        raise ArtifactError(
            f"compiled for browsers (target '{target.name}'); type `mlcc serve` and its folder to "
            "open it in one, or compile for this machine with `mlcc compile`"
        )
    if here == its == "Android" and arch != machine():
        own, abi = (ABIS.get(name, name) for name in (arch, machine()))
        raise ArtifactError(
            f"compiled for Android on {own}, this device has {abi}; compile the model for both: "
            f"`mlcc compile MODEL --target android --abi {own},{abi}`"
        )
    if (arch and arch != machine()) or (its and its != here):
        raise ArtifactError(
            f"compiled for {target.triple or target.arch} (target '{target.name}'), which this "
            f"{machine()} {here} machine cannot run; compile again here with `mlcc compile`"
        )


def _check_abi(manifest: Manifest) -> None:
    tools, extra = manifest.tools, OF_DEVICE.get(manifest.target.device)
    tvm, tvm_ffi = _installed(manifest.target, extra) if extra else (TVM, TVM_FFI)
    if manifest.abi == abi_hash(tvm, tvm_ffi):
        return
    how = "compile the model again with `mlcc compile`"
    if extra and (tools.tvm, tools.tvm_ffi) != (tvm, tvm_ffi):
        how += f" or type `pip install apache-tvm=={tools.tvm} apache-tvm-ffi=={tools.tvm_ffi}`"
    raise ArtifactError(
        f"compiled for another ABI (mlcc {tools.mlcc}, tvm {tools.tvm}, tvm-ffi {tools.tvm_ffi}); "
        f"here are tvm {tvm}, tvm-ffi {tvm_ffi}, kernel interface {KERNEL_INTERFACE}: {how}"
    )


def _installed(target: TargetInfo, extra: str) -> tuple[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # imported late: rarely needed

    try:
        return version("apache-tvm"), version("apache-tvm-ffi")
    except PackageNotFoundError as error:
        package, needs = str(error.name), f"target '{target.name}' needs"
        module = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi"}.get(package, package)
        if not is_here(module):
            raise ArtifactError(f"{needs} {advice(package, extra)}") from error
        raise ArtifactError(
            f"{needs} the version of {package}, whose {module} is here without its metadata; copy "
            f"{package.replace('-', '_')}-VERSION.dist-info beside it, or type "
            f'`pip install "mlcc[{extra}]"`'
        ) from error


def _check_features(target: TargetInfo) -> tuple[str, ...]:
    present = cpu_features()
    if not target.features or not present:
        reason = f"the CPU's features cannot be read on {system()}: not checked"
        return (reason,) if target.features else ()
    missing = missing_features(target.features, present)
    if missing:
        raise ArtifactError(
            f"needs a CPU with {', '.join(missing)}, which this one lacks; "
            "compile again here, or for all of its kind with `mlcc compile --cpu any`"
        )
    if "amx-tile" in target.features and (refused := allow_tiles()):
        raise ArtifactError(
            f"needs AMX, which {system()} does not let this process use ({os.strerror(refused)}); "
            "Linux 5.16 and later do: run it there, or compile with `mlcc compile --cpu any`"
        )
    return ()
