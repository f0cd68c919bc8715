"""Makes the one archive of Python that a tab loads; runs in Pyodide, started by python.mjs.

In it: what `mlcc.embedded.entry` imports of mlcc, jinja2, markupsafe, and of Python's standard
library, all of it compiled by this very interpreter. Pyodide ships the library as source, and
compiling that is most of its start-up. The same sources give the same bytes. (pyodide-build's
`py-compile` writes the bytecode of the Python that it runs on, which is not the tab's.)

Imports are read from the syntax trees, those inside functions too, so nothing depends on what
happened to run here.
"""

from __future__ import annotations

import ast
import py_compile
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

DATE = (1980, 1, 1, 0, 0, 0)

NEVER = {
    "_pydatetime", "_pyrepl", "argparse", "bdb", "cmd", "code", "ctypes", "doctest", "email",
    "ftplib", "getopt", "http", "multiprocessing", "netrc", "pdb", "plistlib", "pydoc",
    "rlcompleter", "runpy", "socketserver", "statistics", "tarfile", "unittest", "webbrowser",
    "xml", "xmlrpc",
}  # fmt: skip
"""Debuggers, consoles, servers and formats that nothing in a tab asks for. Some modules name them
inside functions, which would fail there by ModuleNotFoundError."""

ELSEWHERE = "mlcc.local"
"""What the package's own door opens for Python programs; a tab has another."""

ENCODINGS = [
    "ascii", "latin_1", "raw_unicode_escape", "unicode_escape", "utf_8", "utf_8_sig",
    "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le",
]  # fmt: skip
ALWAYS = ("mlcc.embedded.entry", *(f"encodings.{name}" for name in ENCODINGS))
"""Encodings are found by name: those that json looks for, and what Jinja reads its strings by."""


class Sources:
    """Module name -> (path in the archive, source)."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, bytes]] = {}

    def add(self, path: str, source: bytes) -> None:
        """`path` is relative to a folder of sys.path."""
        if path.endswith(".py"):
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self.files.setdefault(name, (path, source))

    def imports(self, name: str) -> Iterator[str]:
        """Every name that a module might import; `from a import b` may mean the module a.b."""
        path, source = self.files[name]
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _resolve(node, package)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)

    def closure(self, roots: Sequence[str]) -> list[str]:
        """All modules that the roots need, by name."""
        found: set[str] = set()
        todo = list(roots)
        while todo:
            name = todo.pop()
            if name in found or name not in self.files or name.partition(".")[0] in NEVER:
                continue
            if f"{name}.".startswith(f"{ELSEWHERE}."):
                continue
            found.add(name)
            todo += [*self.imports(name), name.rpartition(".")[0]]
        return sorted(found)


def _resolve(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of what `from ... import` reads."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def read(folders: Sequence[Path], library: Path) -> Sources:
    """Packages below the folders, then the standard library's archive."""
    sources = Sources()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            sources.add(path.relative_to(folder.parent).as_posix(), path.read_bytes())
    with zipfile.ZipFile(library) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith("/"):
                sources.add(name, archive.read(name))
    return sources


def compiled(path: str, source: bytes) -> bytes:
    """Bytecode. Assertions stay; only docstrings of others' code would be worth stripping."""
    made = Path("/tmp/module.pyc")
    Path("/tmp/module.py").write_bytes(source)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    optimize = 0 if path.startswith("mlcc/") else 2
    py_compile.compile(
        "/tmp/module.py", str(made), path, doraise=True, invalidation_mode=mode, optimize=optimize
    )
    return made.read_bytes()


def write(sources: Sources, names: Sequence[str], out: Path) -> None:
    """The archive, smallest form."""
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            path, source = sources.files[name]
            info = zipfile.ZipInfo(f"{path}c", DATE)
            archive.writestr(info, compiled(path, source), zipfile.ZIP_DEFLATED, 9)


def main(folders: Sequence[str], library: str, out: str) -> str:
    """Write `out`. Returns the names of mlcc's modules in it, for the log."""
    sources = read([Path(folder) for folder in folders], Path(library))
    missing = [name for name in ALWAYS if name not in sources.files]
    if missing:
        raise FileNotFoundError(f"no source of {', '.join(missing)}")
    names = sources.closure([*ALWAYS, *sorted(sys.modules)])
    write(sources, names, Path(out))
    return " ".join(name for name in names if name.startswith("mlcc"))
