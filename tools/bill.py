"""What a release has inside that others wrote: a bill of materials, and their licences.

The bill is CycloneDX 1.6. It names what is in the files, with versions and checksums where the lock
files have them; what pip or npm installs beside them is theirs to say.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
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
"""How the page's licences.txt begins each of its parts."""
_SPDX = re.compile(r"\(?[A-Za-z0-9.+-]+\)?( (AND|OR|WITH) \(?[A-Za-z0-9.+-]+\)?)*")
_CLASSIFIERS = {"Apache Software License": "Apache-2.0", "BSD License": "BSD-3-Clause"}
_SAID_IN_WORDS = {"wgpu": "BSD-2-Clause"}
_PYTHON = ("apache-tvm", "apache-tvm-ffi", "jinja2", "markupsafe", "wgpu", "ziglang")
"""Whose code, headers or C++ library are in the executor, in the wasm runtime or in a tab's zip."""


@dataclass(frozen=True)
class Part:
    """Something that others wrote. kind: as in a package URL; terms: SPDX, or a name, or ""."""

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


def parts() -> list[Part]:
    """All of them, by kind and name. web/dist must have been built."""
    return sorted(
        [*_python(), *_cpython(), *_npm(), *_crates()], key=lambda part: (part.kind, part.name)
    )


def _python() -> Iterator[Part]:
    for name in _PYTHON:
        found = metadata.distribution(name)
        files = [file for file in found.files or () if _is_licence(file.name)]
        texts = dict.fromkeys(Path(str(f.locate())).read_text(errors="replace") for f in files)
        terms = _SAID_IN_WORDS.get(name) or _terms(found.metadata)
        yield Part("pypi", name, found.version, terms, tuple(texts))


def _cpython() -> Iterator[Part]:
    """In Pyodide, and its library in a tab's zip; neither brings the terms, which are those of
    typing_extensions, word for word."""
    lock = json.loads((PAGE / "pyodide" / "pyodide-lock.json").read_text())
    files = metadata.distribution("typing_extensions").files or ()
    (text,) = (Path(str(f.locate())).read_text() for f in files if _is_licence(f.name))
    yield Part("generic", "cpython", lock["info"]["python"], "PSF-2.0", (text,))


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "COPYING", "UNLICENSE"))


def _terms(of: metadata.PackageMetadata) -> str:
    """SPDX's expression where a package has one, else that of its classifier."""
    licences = [*(of.get_all("License-Expression") or ()), *(of.get_all("Classifier") or ())]
    known = (line for line in licences if "::" not in line or line.startswith("License :: "))
    words = str(next(known, "")).rpartition(" :: ")[2]
    return _CLASSIFIERS.get(words, words)


def _npm() -> Iterator[Part]:
    """What the page's build wrote down."""
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
    """Of the wasm file that reads grammars, if it was compiled: those that its build takes, of
    which cargo has the sources then. Cargo.lock has their checksums."""
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
    """What cargo says of the packages for wasm."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"), "bin")  # as grammar.py has it
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(home)) or "cargo"
    command = [cargo, "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", "wasm32-unknown-unknown"]
    done = subprocess.run(command, cwd=GRAMMAR, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout)["packages"])


def as_json(version: str, at: datetime, of: list[Part]) -> str:
    """The bill. The same parts, version and time give the same text."""
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
    """The licences, each text once for all that share it."""
    own = (ROOT / "LICENSE").read_text(encoding="utf-8")
    by_text = {own.strip(): ["mlcc"]}
    for part in of:
        name = f"{part.name} {part.version}" + (f" ({part.terms})" if part.terms else "")
        for text in part.texts:
            by_text.setdefault(text.strip(), []).append(name)
    entries = ["\n".join(names) + f"\n\n{text}\n" for text, names in by_text.items()]
    return f"\n{RULE}\n\n".join(entries)
