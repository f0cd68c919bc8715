"""Makes web/dist from the sources; unchanged products are kept.

    python web/tools/make.py            npm's packages, the tab's Python, then package and page
    python web/tools/make.py --check    formats, lint and types
    python web/tools/make.py --node     print the path of the Node that is used

Run it with a Python that has jinja2, markupsafe and llguidance, whose files go into the tab.
Standard library only. `dev.py web` runs it, and installs Node if there is none. With Rust,
`grammar.py` compiles llguidance; without, tabs refuse grammars. All but the grammar is also kept in
the user's cache, by its inputs, for other checkouts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import grammar

WEB = Path(__file__).resolve().parents[1]
ROOT = WEB.parent
sys.path.append(str(ROOT / "runtime"))

from mlcc.util import user_folders  # noqa: E402
from mlcc.util.file_cache import FileCache  # noqa: E402

KEPT = FileCache("web", 256 << 20)
"""Archives of what steps made: 15 MB of Python, 35 MB of web/dist."""
MODULES = WEB / "node_modules"
STAMPS = MODULES / ".mlcc"
"""In a folder that `npm ci` deletes, so later steps run again after it."""
OLDEST = (20, 19)


def find_node() -> str | None:
    """The path of a Node that is new enough: beside this Python, else on the path."""
    beside = Path(sys.executable).parent
    for place in (f"{beside}{os.pathsep}{os.environ.get('PATH', '')}", os.environ.get("PATH", "")):
        node = shutil.which("node", path=place)
        if node and version(node) >= OLDEST:
            return node
    return None


def version(node: str) -> tuple[int, ...]:
    """The version of a Node; () if it does not start."""
    try:
        result = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", result.stdout)[:2])


def hashed(files: Iterable[Path]) -> str:
    """A hash of the paths and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def files(*folders: Path) -> list[Path]:
    """The source files below folders."""
    kinds = {".ts", ".js", ".mjs", ".py", ".html", ".css", ".svg", ".json"}
    return [path for folder in folders for path in folder.rglob("*") if path.suffix in kinds]


def step(name: str, inputs: Iterable[Path], product: Path, make: Callable[[], None]) -> None:
    """Make a product, unless it exists and was made from the same inputs."""
    stamp, wanted = STAMPS / name, hashed(inputs)
    if product.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"web: making {name}", file=sys.stderr, flush=True)
    make()
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(wanted)


def kept(
    inputs: Iterable[Path], tool: str, folders: Sequence[Path], make: Callable[[], None]
) -> Callable[[], None]:
    """A step's `make` that takes the folders from the user's cache if they were made before from
    the same inputs with the same version of a tool."""

    def load_or_make() -> None:
        key = hashlib.sha256(f"{tool}\0{hashed(inputs)}".encode()).hexdigest()
        if (data := KEPT.load(key)) is not None:
            unpack(data, folders)
            return
        make()
        KEPT.store(key, packed(folders))
        KEPT.trim()

    return load_or_make


def installed(inputs: Iterable[Path], node: str, install: Callable[[], None]) -> None:
    """npm's packages, from the user's cache if another checkout has installed the same: to copy
    their 350 MB takes an eighth of the time. The cache keeps those of one lock file."""
    key = hashlib.sha256(f"{node} {platform.platform()} {hashed(inputs)}".encode()).hexdigest()
    with suppress(OSError, RuntimeError):
        kept = user_folders.cache() / "npm" / key
        if kept.exists():
            if MODULES.exists():
                shutil.rmtree(MODULES)
            shutil.copytree(kept, MODULES, symlinks=True)
            return
    install()
    with suppress(OSError, RuntimeError):
        kept = user_folders.cache() / "npm" / key
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            shutil.copytree(MODULES, Path(folder) / key, symlinks=True)
            for old in set(kept.parent.iterdir()) - {Path(folder)}:
                shutil.rmtree(old)
            (Path(folder) / key).rename(kept)


def packed(folders: Sequence[Path]) -> bytes:
    """An archive of all files below folders of web/."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in sorted(path for folder in folders for path in folder.rglob("*")):
            archive.write(path, path.relative_to(WEB))
    return data.getvalue()


def unpack(data: bytes, folders: Sequence[Path]) -> None:
    """Replace folders by those of an archive."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(WEB)


def main() -> None:
    node = find_node()
    if not node:
        oldest = ".".join(map(str, OLDEST))
        sys.exit(f"web: needs Node {oldest} or newer; type: python3 dev.py web (which brings one)")
    if sys.argv[1:] == ["--node"]:
        print(node)
        return
    path = f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"

    def run(*command: str) -> None:
        program = shutil.which(command[0], path=path) or command[0]
        done = subprocess.run([program, *command[1:]], cwd=WEB, env={**os.environ, "PATH": path})
        if done.returncode:
            sys.exit(f"web: `{' '.join(command)}` failed in {WEB.relative_to(ROOT)} (see above)")

    packages = [WEB / "package.json", WEB / "package-lock.json", WEB / ".npmrc"]
    tool = str(version(node))
    npm = partial(run, "npm", "ci", "--loglevel=error")
    step("packages", packages, MODULES / "vite", lambda: installed(packages, tool, npm))
    if sys.argv[1:] == ["--check"]:
        run("npm", "run", "--silent", "check")
        return

    tools = files(WEB / "tools")
    shared = [ROOT / "tools/python_zip.py"]
    python = [*packages, *tools, *shared, *files(ROOT / "runtime/mlcc"), *files(site("jinja2"))]
    python += files(site("llguidance"))
    archive = WEB / "public/python/python.zip"
    folder = str(site("jinja2").parent)
    made = [WEB / "public/python", WEB / "public/pyodide"]
    write = kept(python, tool, made, lambda: run("node", "tools/python.mjs", folder))
    step("python", python, archive, write)

    wasm = WEB / "public/grammar/grammar.wasm"
    if why := grammar.missing():
        wasm.unlink(missing_ok=True)
        print(f"web: tabs will refuse grammars: {why}", file=sys.stderr)
    else:
        step("grammar", grammar.sources(), wasm, lambda: grammar.build(wasm))

    config = [*WEB.glob("*.json"), *WEB.glob("*.js")]
    sources = [*config, *tools, *files(WEB / "src", WEB / "page")]
    build = kept(sources, tool, [WEB / "dist"], lambda: run("node", "tools/build.mjs"))

    def write() -> None:
        build()
        for part in ("lib", "page"):  # what is kept may have those of other Python sources
            shutil.copytree(WEB / "public", WEB / "dist" / part, dirs_exist_ok=True)

    copied = [archive, *wasm.parent.glob("*.wasm")]
    step("dist", [*sources, *copied], WEB / "dist/page/index.html", write)


def site(package: str) -> Path:
    """The folder of an installed package."""
    spec = importlib.util.find_spec(package)
    if not spec or not spec.origin:
        sys.exit(f"web: this Python lacks {package}; type: python3 dev.py web")
    return Path(spec.origin).parent


if __name__ == "__main__":
    main()
