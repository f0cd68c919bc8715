"""Makes the archive of Python modules that a tab loads; runs in Pyodide, started by python.mjs.

It contains the modules that `mlcc.embedded.entry` imports: of mlcc, jinja2, markupsafe, llguidance
(its GBNF converter) and the standard library, compiled by the tab's own interpreter. Pyodide ships
the library as source, and compiling it is most of its start-up. The same sources give the same
bytes. (pyodide-build's `py-compile` writes bytecode for the Python that it runs on, which is not
the tab's.)

`python_zip` (../../tools), which python.mjs puts on the path, finds the imported modules.
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
"""Debuggers, consoles, servers and formats that a tab does not use. Some modules import them inside
functions, which would raise ModuleNotFoundError there. `mlcc.local` is the interface for Python
programs; a tab has another."""

ENCODINGS = [
    "ascii", "latin_1", "raw_unicode_escape", "unicode_escape", "utf_8", "utf_8_sig",
    "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le",
]  # fmt: skip
ALWAYS = ("mlcc.embedded.entry", *(f"encodings.{name}" for name in ENCODINGS))
"""Encodings are imported by name: those of json, and those by which Jinja reads its strings."""


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
    """Write `out`. grammars: llguidance's GBNF converter, its only needed module in pure Python.
    Returns the names of mlcc's modules in the archive, for the log."""
    sources = read([Path(folder) for folder in folders], Path(library))
    sources.add("llguidance/gbnf_to_lark.py", Path(grammars).read_bytes())
    missing = [name for name in ALWAYS if name not in sources.files]
    if missing:
        raise FileNotFoundError(f"no source of {', '.join(missing)}")
    names = sources.closure([*ALWAYS, *sorted(sys.modules)], NEVER)
    write(sources, names, Path(out))
    return " ".join(name for name in names if name.startswith("mlcc"))
