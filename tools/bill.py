"""Third-party parts of a release: a bill of materials, and their licences.

The bill is CycloneDX 1.6. It lists what the files contain, with versions and checksums where the
lock files have them; dependencies that pip or npm install are not included.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "web" / "dist" / "page"
GRAMMAR = ROOT / "web" / "grammar"
RULE = "-" * 80
_ENTRY = re.compile(r"(\S+) (\d\S*) \(([^)\n]+)\)$", re.MULTILINE)
"""The first line of each part in the page's licences.txt."""
_SPDX = re.compile(r"\(?[A-Za-z0-9.+-]+\)?( (AND|OR|WITH) \(?[A-Za-z0-9.+-]+\)?)*")
_CLASSIFIERS = {"Apache Software License": "Apache-2.0", "BSD License": "BSD-3-Clause"}
_CLASSIFIERS |= {"MIT License": "MIT"}
_SAID_IN_WORDS = {"tqdm": "MPL-2.0 AND MIT", "wgpu": "BSD-2-Clause"}
CPYTHON_ON_WINDOWS = "3.13.2"
"""In the package that `tools/windows_python.py` names."""
_PYTHON = ("apache-tvm", "apache-tvm-ffi", "jinja2", "markupsafe", "wgpu", "ziglang")
"""Packages with code, headers or a C++ library in the executor, the wasm runtime or a tab's zip."""


@dataclass(frozen=True)
class Part:
    """A third-party part. kind: as in a package URL; terms: SPDX, or a name, or ""."""

    kind: str
    name: str
    version: str
    terms: str
    texts: tuple[str, ...] = ()
    sha256: str = ""

    def component(self) -> Component:
        expressed = _SPDX.fullmatch(self.terms)
        one = LicenseExpression(self.terms) if expressed else DisjunctiveLicense(name=self.terms)
        group, _, name = self.name.rpartition("/")
        return Component(
            type=ComponentType.LIBRARY,
            group=group or None,
            name=name,
            version=self.version,
            licenses=[one],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=self.sha256)] * bool(self.sha256),
            purl=PackageURL(self.kind, group or None, name, self.version),
            bom_ref=f"{self.kind}:{self.name}@{self.version}",
        )


def parts(windows: Path | None = None) -> list[Part]:
    """All parts, by kind and name. web/dist must have been built. windows: the zip for it."""
    found = [*_python(), *_cpython(), *_npm(), *_crates()]
    known = {(part.kind, part.name, part.version) for part in found}
    more = of_windows(windows) if windows else []
    found += [part for part in more if (part.kind, part.name, part.version) not in known]
    return sorted(found, key=lambda part: (part.kind, part.name, part.version))


def _python() -> Iterator[Part]:
    yield from map(_package, map(metadata.distribution, _PYTHON))


def _package(found: metadata.Distribution) -> Part:
    name = found.metadata["Name"].lower()
    files = [file for file in found.files or () if _is_licence(file.name)]
    texts = dict.fromkeys(Path(str(f.locate())).read_text(errors="replace") for f in files)
    terms = _SAID_IN_WORDS.get(name) or _terms(found.metadata)
    return Part("pypi", name, found.version, terms, tuple(texts))


def of_windows(archive: Path) -> list[Part]:
    """CPython and the packages in the zip for Windows (`tools/windows_zip.py`)."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if ".dist-info/" in name or _is_licence(Path(name).name):
                file.extract(name, folder)
        packages = Path(folder) / "mlcc" / "site-packages"
        found = map(_package, metadata.distributions(path=[str(packages)]))
        parts = [part for part in found if part.name != "mlcc"]
        text = file.read("mlcc/LICENSE.txt").decode()
    return [*parts, Part("generic", "cpython", CPYTHON_ON_WINDOWS, "PSF-2.0", (text,))]


def _cpython() -> Iterator[Part]:
    """CPython in Pyodide, and its library in a tab's zip. Neither contains the licence, which is
    the same text as that of typing_extensions."""
    lock = json.loads((PAGE / "pyodide" / "pyodide-lock.json").read_text())
    files = metadata.distribution("typing_extensions").files or ()
    (text,) = (Path(str(f.locate())).read_text() for f in files if _is_licence(f.name))
    yield Part("generic", "cpython", lock["info"]["python"], "PSF-2.0", (text,))


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "COPYING", "UNLICENSE"))


def _terms(of: metadata.PackageMetadata) -> str:
    """A package's SPDX expression, or that of its classifier."""
    licences = [*(of.get_all("License-Expression") or ()), *(of.get_all("Classifier") or ())]
    known = (line for line in licences if "::" not in line or line.startswith("License :: "))
    words = str(next(known, "")).rpartition(" :: ")[2]
    return _CLASSIFIERS.get(words, words)


def _npm() -> Iterator[Part]:
    """Parts of the page, recorded by its build."""
    entries: list[str] = []
    text = (PAGE / "licences.txt").read_text(encoding="utf-8")
    for entry in text.split(f"\n{RULE}\n\n"):
        if _ENTRY.match(entry):
            entries.append(entry)
        elif entries:  # a licence with a rule of its own
            entries[-1] += f"\n{RULE}\n\n{entry}"
    for entry in entries:
        head, _, text = entry.partition("\n")
        for name, version, terms in _ENTRY.findall(head):
            yield Part("npm", name, version, terms, (text.strip(),))


def _crates() -> Iterator[Part]:
    """Crates of the grammar wasm file, if it was compiled: those of its build, for which cargo has
    the sources. Cargo.lock has their checksums."""
    if not (PAGE / "grammar" / "grammar.wasm").exists():
        return
    lock = (GRAMMAR / "Cargo.lock").read_text(encoding="utf-8").split("[[package]]")[1:]
    locked = [dict(re.findall(r'^(\w+) = "(.*)"$', one, flags=re.MULTILINE)) for one in lock]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in locked}
    for crate in _taken():
        name, version = crate["name"], crate["version"]
        if (digest := sums[name, version]) is not None:  # the others are our own
            files = sorted(Path(crate["manifest_path"]).parent.iterdir())
            texts = [one.read_text("utf-8", "replace") for one in files if _is_licence(one.name)]
            terms = (crate["license"] or "").replace("/", " OR ")
            yield Part("cargo", name, version, terms, tuple(texts), digest)


def _taken() -> list[dict[str, Any]]:
    """cargo's metadata of the packages for wasm."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"), "bin")  # as grammar.py has it
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(home)) or "cargo"
    command = [cargo, "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", "wasm32-unknown-unknown"]
    done = subprocess.run(command, cwd=GRAMMAR, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout)["packages"])


def as_json(version: str, at: datetime, of: list[Part]) -> str:
    """The bill. Equal parts, version and time give equal text."""
    mlcc = Component(
        type=ComponentType.APPLICATION,
        name="mlcc",
        version=version,
        licenses=[LicenseExpression("Apache-2.0")],
        purl=PackageURL("pypi", name="mlcc", version=version),
        bom_ref=f"mlcc@{version}",
    )
    components = [part.component() for part in of]
    bom = Bom(components=components, metadata=BomMetaData(timestamp=at, component=mlcc))
    bom.register_dependency(mlcc, components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    return re.sub(r'\n  "serialNumber": "[^"]*",', "", text) + "\n"  # random


def as_text(of: list[Part]) -> str:
    """The licences; parts with the same text share it."""
    own = (ROOT / "LICENSE").read_text(encoding="utf-8")
    by_text = {own.strip(): ["mlcc"]}
    for part in of:
        name = f"{part.name} {part.version}" + (f" ({part.terms})" if part.terms else "")
        for text in part.texts:
            by_text.setdefault(text.strip(), []).append(name)
    entries = ["\n".join(names) + f"\n\n{text}\n" for text, names in by_text.items()]
    return f"\n{RULE}\n\n".join(entries)
