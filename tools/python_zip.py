"""Compiles Python modules into one zip: those that given roots import, and no others.

Imports are read from the syntax trees, those inside functions too, so the result does not depend on
what runs; a string that is the full name of a module of mlcc counts as an import (importlib's).
Equal sources give equal bytes, by the Python that will load them. For a tab (web/tools/bundle.py,
which runs in Pyodide) and for C programs (mobile/c/build.py). The standard library only.
"""

from __future__ import annotations

import ast
import importlib._bootstrap_external as bootstrap
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import source_hash
from pathlib import Path

DATE = (1980, 1, 1, 0, 0, 0)


class Sources:
    """Module name -> (path in the archive, source)."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, bytes]] = {}
        self._imports: dict[str, tuple[str, ...]] = {}

    def add(self, path: str, source: bytes) -> None:
        """`path` is relative to a folder of sys.path."""
        if path.endswith(".py"):
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self.files.setdefault(name, (path, source))

    def imports(self, name: str) -> tuple[str, ...]:
        """Every name that a module might import; `from a import b` may mean the module a.b."""
        if name not in self._imports:  # parsing a whole standard library takes seconds
            self._imports[name] = tuple(self._read_imports(name))
        return self._imports[name]

    def _read_imports(self, name: str) -> Iterator[str]:
        path, source = self.files[name]
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        tree = ast.parse(source)
        may_name_ours = package.partition(".")[0] == "mlcc" or b"mlcc." in source
        for node in ast.walk(tree) if may_name_ours else _statements(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _resolve(node, package)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and str(node.value).startswith("mlcc."):
                yield str(node.value)

    def add_folder(self, folder: Path) -> None:
        """A package and all below it."""
        for path in sorted(folder.rglob("*.py")):
            self.add(path.relative_to(folder.parent).as_posix(), path.read_bytes())

    def closure(self, roots: Sequence[str], never: Collection[str]) -> list[str]:
        """All modules that the roots need, by name, but those of `never` and what is below them."""
        found: set[str] = set()
        todo = list(roots)
        while todo:
            name = todo.pop()
            if name in found or name not in self.files or _is_below(name, never):
                continue
            found.add(name)
            todo += [*self.imports(name), name.rpartition(".")[0]]
        return sorted(found)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements of a module, without their expressions, which hold no import."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, part, ())


def _resolve(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of what `from ... import` reads."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def _is_below(name: str, packages: Collection[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[: i + 1]) in packages for i in range(len(parts)))


def compiled(path: str, source: bytes) -> bytes:
    """Bytecode. Assertions stay; only docstrings of others' code would be worth stripping."""
    optimize = 0 if path.startswith("mlcc/") else 2
    code = compile(source, path, "exec", dont_inherit=True, optimize=optimize)
    return bytes(bootstrap._code_to_hash_pyc(code, source_hash(source), False))


def write(
    sources: Sources,
    names: Sequence[str],
    out: Path,
    texts: Mapping[str, str] | None = None,
    method: int = zipfile.ZIP_DEFLATED,
) -> None:
    """The archive, smallest form unless `method` says otherwise. texts: further files, by name."""
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in (texts or {}).items():
            archive.writestr(zipfile.ZipInfo(name, DATE), text)
        for name in names:
            path, source = sources.files[name]
            info = zipfile.ZipInfo(f"{path}c", DATE)
            archive.writestr(info, compiled(path, source), method, 9)
