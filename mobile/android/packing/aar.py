"""Writes the AAR: Kotlin's classes, and per ABI the output of `mobile/c/android.py`."""

from __future__ import annotations

import shutil
import tempfile
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packing import ANDROID, ROOT, PackingError, elf, jar, parts

_MODULE = ANDROID / "mlcc-android"
_LIBRARIES = (*parts.OURS, "libpython3.*.so")
_ZIPS = ("mlcc.zip", "python.zip")
_HOW = "ANDROID_NDK_HOME=... python mobile/c/android.py"


def find_abis(native: Path) -> list[str]:
    """The ABIs that were built. Raises PackingError for no ABI, or an incomplete one."""
    abis = [abi for abi in elf.ABIS if (native / abi).is_dir()]
    if not abis:
        raise PackingError(
            f"{native} has no native parts for Android; build "
            f"them ({_HOW}), or type: package.py aar --without-native, to compile apps with"
        )
    for name in _ZIPS:
        if not (native / name).exists():
            raise PackingError(f"{native} has no {name}; type: {_HOW}")
    for abi in abis:
        for name in _LIBRARIES:
            if not list((native / abi).glob(name)):
                raise PackingError(f"{native / abi} has no {name}; type: {_HOW} --abi {abi}")
        for library in (native / abi).rglob("*.so"):
            elf.check(library, elf.ABIS[abi])
    return abis


def publish(native: Path | None, abis: Sequence[str], repository: Path) -> Path:
    """Write the AAR and the modules that it needs into a Maven repository; return the AAR."""
    version = jar.publish_modules(repository, ("mlcc-core", "mlcc-djl"))
    pom = ET.parse(_MODULE / "pom.xml")
    project = pom.getroot()
    ET.register_namespace("", jar.SPACE[""])
    packaging = ET.SubElement(project, f"{{{jar.SPACE['']}}}packaging")
    packaging.text = "aar"
    name = "mlcc-android" if abis else "mlcc-android-without-native"
    project.find("artifactId", jar.SPACE).text = name  # type: ignore[union-attr]
    pom.write(
        jar.repository_path(repository, name, version, "pom"),
        encoding="utf-8",
        xml_declaration=True,
    )
    out = jar.repository_path(repository, name, version, "aar")
    write(_MODULE / "target" / f"mlcc-android-{version}.jar", native, abis, out)
    return out


def write(classes: Path, native: Path | None, abis: Sequence[str], out: Path) -> None:
    """Write the archive. classes: a JAR."""
    partial = out.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        jar.add(archive, "AndroidManifest.xml", _manifest())
        jar.add(archive, "classes.jar", classes.read_bytes())
        jar.add(archive, "R.txt", b"")
        jar.add(archive, "proguard.txt", (_MODULE / "consumer-rules.pro").read_bytes())
        jar.add(archive, "LICENSE", (ROOT / "LICENSE").read_bytes())
        if native is not None:
            for abi in abis:
                for library in sorted((native / abi).glob("*.so")):
                    jar.add(archive, f"jni/{abi}/{library.name}", library.read_bytes())
            _add_assets(archive, native, abis)
    partial.replace(out)


def installed_size(native: Path, abi: str) -> int:
    """Bytes on a phone after unpacking: libraries, Python's extension modules, both zips."""
    files = [*(native / abi).rglob("*.so"), *(native / name for name in _ZIPS)]
    return sum(path.stat().st_size for path in files)


def _manifest() -> bytes:
    return (_MODULE / "src" / "main" / "AndroidManifest.xml").read_bytes()


def _add_assets(archive: zipfile.ZipFile, native: Path, abis: Sequence[str]) -> None:
    """Assets in the layout of `MlccAndroid.files`: shared files, and a folder per ABI."""
    jar.add(archive, "assets/mlcc/platforms", "\n".join(abis).encode())
    for name in _ZIPS:
        jar.add(archive, f"assets/mlcc/{name}", (native / name).read_bytes())
    for abi in abis:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            shutil.copytree(native / abi / "lib-dynload", folder / "modules")
            jar.add_folder(archive, f"assets/mlcc/{abi}/modules", folder / "modules")
            for name in _ZIPS:
                shutil.copyfile(native / name, folder / name)
            parts.write_list(folder, f"android-{elf.ABIS[abi]}", [], libraries=None)
            jar.add(archive, f"assets/mlcc/{abi}/{parts.LIST}", (folder / parts.LIST).read_bytes())
    jar.add_folder(archive, "assets/mlcc/licences", native / "licences")
