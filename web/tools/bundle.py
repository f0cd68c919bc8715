"""Makes the one archive of Python that a tab loads; runs in Pyodide, started by python.mjs.

In it: what `mlcc.embedded.entry` imports of mlcc, jinja2, markupsafe, llguidance's reader of GBNF,
and of Python's standard library, all of it compiled by this very interpreter. Pyodide ships the
library as source, and compiling that is most of its start-up. The same sources give the same bytes.
(pyodide-build's `py-compile` writes the bytecode of the Python that it runs on, which is not the
tab's.)

What is imported is found by `python_zip` (../../tools), which python.mjs puts on the path.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from python_zip import Sources, write

NEVER = {
    "_pydatetime", "_pyrepl", "argparse", "bdb", "cmd", "code", "ctypes", "doctest", "email",
    "ftplib", "getopt", "http", "multiprocessing", "netrc", "pdb", "plistlib", "pydoc",
    "rlcompleter", "runpy", "socketserver", "statistics", "tarfile", "unittest", "webbrowser",
    "xml", "xmlrpc", "mlcc.local",
}  # fmt: skip
"""Debuggers, consoles, servers and formats that nothing in a tab asks for. Some modules name them
inside functions, which would fail there by ModuleNotFoundError. `mlcc.local` is the package's own
door for Python programs; a tab has another."""

ENCODINGS = [
    "ascii", "latin_1", "raw_unicode_escape", "unicode_escape", "utf_8", "utf_8_sig",
    "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le",
]  # fmt: skip
ALWAYS = ("mlcc.embedded.entry", *(f"encodings.{name}" for name in ENCODINGS))
"""Encodings are found by name: those that json looks for, and what Jinja reads its strings by."""


def read(folders: Sequence[Path], library: Path) -> Sources:
    """Packages below the folders, then the standard library's archive."""
    sources = Sources()
    for folder in folders:
        sources.add_folder(folder)
    with zipfile.ZipFile(library) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith("/"):
                sources.add(name, archive.read(name))
    return sources


def main(folders: Sequence[str], library: str, grammars: str, out: str) -> str:
    """Write `out`. grammars: a module of llguidance, whose package itself is no Python; the one
    that reads GBNF is. Returns the names of mlcc's modules in it, for the log."""
    sources = read([Path(folder) for folder in folders], Path(library))
    sources.add("llguidance/gbnf_to_lark.py", Path(grammars).read_bytes())
    missing = [name for name in ALWAYS if name not in sources.files]
    if missing:
        raise FileNotFoundError(f"no source of {', '.join(missing)}")
    names = sources.closure([*ALWAYS, *sorted(sys.modules)], NEVER)
    write(sources, names, Path(out))
    return " ".join(name for name in names if name.startswith("mlcc"))
