"""Builds the chat page of a server, without the parts that run models in the browser's tab.

    python web/tools/server_page.py OUTPUT

Takes esbuild and the page's libraries alone, in the versions and by the hashes of
package-lock.json: from web/node_modules where npm installed them, else from npm's registry (3 MB,
no Node). `dev.py web` builds the whole page, with Vite. The standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WEB = Path(__file__).resolve().parents[1]
LIBRARIES = ("markdown-it", "@mdit/plugin-tex", "katex", "lowlight", "idb")
"""What web/page imports."""
REGISTRY = "https://registry.npmjs.org"
MOST_BYTES = 32 << 20
_SECONDS = 60.0
_SYSTEMS = {"linux": "linux", "darwin": "darwin", "win32": "win32"}
_MACHINES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
OPTIONS = (
    "--bundle",
    "--splitting",
    "--minify",
    "--format=esm",
    "--target=es2022",
    "--entry-names=[name]-[hash]",
    "--chunk-names=[name]-[hash]",
    "--asset-names=[name]-[hash]",
    "--loader:.woff2=file",
    "--external:*.woff",  # every browser with modules reads woff2, which is named first
    "--external:*.ttf",
    "--log-level=error",
)


class PageError(Exception):
    """The page cannot be built; the message says why."""


PAGE = {"assets", "icon.svg", "index.html", "licences.txt"}
"""What a built page consists of."""


def sources() -> list[Path]:
    """The files that the page is made of."""
    kinds = {".ts", ".css", ".html", ".svg"}
    found = [path for name in ("page", "src") for path in (WEB / name).rglob("*")]
    return [
        *sorted(path for path in found if path.suffix in kinds),
        WEB / "package-lock.json",
        Path(__file__),
    ]


def source_hash() -> str:
    """Changes with the sources."""
    digest = hashlib.sha256()
    for path in sources():
        name = path.relative_to(WEB).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def build_or_explain(output: Path) -> str:
    """Build into the folder `output`, unless its sources have not changed. Returns "", or why it
    failed."""
    stamp, wanted = output.with_name(f".{output.name}.sha256"), source_hash()
    if (output / "index.html").exists() and stamp.exists() and stamp.read_text() == wanted:
        return ""
    try:
        build(output)
    except (PageError, OSError) as error:
        return str(error)
    stamp.write_text(wanted)
    return ""


def build(output: Path) -> None:
    """Build into the folder `output`, whole or not at all. Raises PageError, also for a folder that
    holds anything but a page, and OSError."""
    check_replaceable(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        modules = node_modules(Path(folder) / "node_modules")
        made = Path(folder) / "made"
        used = bundle(modules, made)
        (made / "licences.txt").write_text(licences(used), encoding="utf-8")
        shutil.rmtree(output, ignore_errors=True)
        made.rename(output)


def check_replaceable(output: Path) -> None:
    """Raise PageError for a folder that holds anything but a page: it would be deleted."""
    others = {path.name for path in output.iterdir()} - PAGE if output.is_dir() else set()
    if others or output.is_file():
        raise PageError(
            f"{output} is no page ({min(others, default='a file')} is there), and would be "
            "replaced; give a folder that is new or empty"
        )


def bundle(modules: Path, made: Path) -> set[Path]:
    """Write the page into `made`, in a folder of its own. Returns the folders of the packages in
    it.

    esbuild's names of files depend on where its sources are, seen from where it runs: so the
    sources are copied beside `made`, and the page is the same wherever it is built.
    """
    folder = made.parent
    for name in ("page", "src"):
        shutil.copytree(WEB / name, folder / name)
    for path in WEB.glob("*.json"):
        shutil.copy(path, folder)
    sheet, report = folder / "index.css", folder / "report.json"
    sheet.write_text('@import "./page/styles/index.css";\n@import "katex/dist/katex.min.css";\n')
    entries = ("page/main.ts", sheet.name)
    command = [str(program(modules)), *entries, *OPTIONS, f"--outdir={made.name}/assets"]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    done = subprocess.run(
        [*command, f"--metafile={report}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PageError(f"esbuild failed: {' '.join(done.stderr.split())[:400]}")
    found = json.loads(report.read_text(encoding="utf-8"))
    entry = {
        Path(row["entryPoint"]).name: Path(name).name
        for name, row in found["outputs"].items()
        if "entryPoint" in row
    }
    for other in (made / "assets").glob("*.css"):  # KaTeX's again, which the page's own contains
        if other.name != entry["index.css"]:
            other.unlink()
    shutil.copy(WEB / "page" / "icon.svg", made / "icon.svg")
    text = (WEB / "page" / "index.html").read_text(encoding="utf-8")
    text = text.replace("./styles/index.css", f"./assets/{entry['index.css']}")
    text = text.replace("./main.ts", f"./assets/{entry['main.ts']}")
    (made / "index.html").write_text(text, encoding="utf-8")
    packages = re.compile(r".*node_modules/((?:@[^/]+/)?[^/]+)/")
    matches = (packages.match(name) for name in found["inputs"])
    return {modules / match[1] for match in matches if match}


def licences(packages: set[Path]) -> str:
    """The text of licences.txt: name, version and terms of each package."""
    blocks = []
    for folder in sorted(packages):
        about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        files = sorted(path for path in folder.iterdir() if path.name.lower().startswith("licen"))
        terms = files[0].read_text(encoding="utf-8").strip() if files else str(about.get("license"))
        blocks.append(f"{about['name']} {about['version']}\n\n{terms}\n")
    return f"\n{'-' * 80}\n\n".join(blocks)


def program(modules: Path) -> Path:
    """The program esbuild."""
    folder = modules / package_of_esbuild()
    return folder / ("esbuild.exe" if os.name == "nt" else "bin/esbuild")


def package_of_esbuild() -> str:
    """The package with esbuild for this machine. Raises PageError."""
    system, machine = _SYSTEMS.get(sys.platform), _MACHINES.get(platform.machine())
    if system is None or machine is None:
        raise PageError(f"there is no esbuild for {sys.platform} on {platform.machine()}")
    return f"@esbuild/{system}-{machine}"


def node_modules(folder: Path) -> Path:
    """A folder with the packages: npm's, or `folder`, into which they are fetched."""
    if (installed := WEB / "node_modules").is_dir() and program(installed).exists():
        return installed
    for name, entry in wanted():
        unpack(fetch(name, entry), folder / name)
    program(folder).chmod(0o755)
    return folder


def wanted() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and lock entries of esbuild, the libraries and what these depend on."""
    lock = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    left, seen = [package_of_esbuild(), *LIBRARIES], set[str]()
    while left:
        name = left.pop()
        if name not in seen and not name.startswith("@types/"):
            seen.add(name)
            entry = lock[f"node_modules/{name}"]
            left += entry.get("dependencies", {})
            yield name, entry


def fetch(name: str, entry: dict[str, Any]) -> bytes:
    """The archive of a package, checked by the lock's hash. Raises PageError."""
    base = os.environ.get("NPM_CONFIG_REGISTRY", REGISTRY).rstrip("/")
    last = name.rpartition("/")[2]
    url = f"{base}/{name}/-/{last}-{entry['version']}.tgz"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as response:
            data: bytes = response.read(MOST_BYTES + 1)
    except (urllib.error.URLError, OSError) as error:
        raise PageError(f"{name} cannot be fetched from npm's registry ({error})") from error
    kind, _, expected = entry["integrity"].partition("-")
    if base64.b64encode(hashlib.new(kind, data).digest()).decode() != expected:
        raise PageError(f"{url} has another hash than package-lock.json says")
    return data


def unpack(archive: bytes, folder: Path) -> None:
    """Write a package's files, which lie in one folder of its archive. Raises PageError."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            name = member.name.partition("/")[2]
            target = folder / name
            if not member.isfile() or ".." in Path(name).parts or Path(name).is_absolute():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            source = files.extractfile(member)
            assert source is not None
            target.write_bytes(source.read())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python web/tools/server_page.py OUTPUT")
    sys.exit(build_or_explain(Path(sys.argv[1]).resolve()) or None)
