"""Builds the documentation as a site from every tracked Markdown page, at the same paths.

    python -m tools.site [FOLDER]

Pages are written for readers of the repository. They are copied to MkDocs' folder (`mkdocs.yml` at
the root configures it), with the files that they link to. Every link and anchor is checked; a dead
one is an error. Pages load nothing from other hosts, so the site needs no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "build" / "docs" / "pages"
"""`docs_dir` of mkdocs.yml."""
SITE = ROOT / "build" / "docs" / "site"
LEFT_OUT = ("dist/", "tests/")
"""Folders whose pages are not part of the site."""

FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^(\s*)(?:[-*]|\d+\.) ")
LINK = re.compile(r"(!?\[(?:[^][]|\[[^][]*\])*\])\(([^)\s]+)\)")


class BrokenLinkError(Exception):
    """A page links to a file that the repository does not have."""


def build(site: Path = SITE) -> None:
    """Stage the pages, build the site. Raises BrokenLinkError, or MkDocs's CalledProcessError."""
    stage(tracked(), STAGE)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir"]
    subprocess.run([*command, str(site)], cwd=ROOT, check=True, env=quiet())


def quiet() -> dict[str, str]:
    """The environment without Material's notice about the future of MkDocs."""
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}


def tracked() -> set[str]:
    """The repository's files: tracked and new ones."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def stage(files: set[str], into: Path) -> None:
    """Copy the pages among `files`, in MkDocs' form, and the files that they link to."""
    shutil.rmtree(into, ignore_errors=True)
    pages = {name for name in files if name.endswith(".md") and not name.startswith(LEFT_OUT)}
    linked: set[str] = set()
    for page in sorted(pages):
        text = (ROOT / page).read_text(encoding="utf-8")
        target = into / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(staged(page, text, files, linked), encoding="utf-8")
    for name in linked - pages:
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)


def staged(page: str, text: str, files: set[str], linked: set[str]) -> str:
    """A page in Python-Markdown's form; adds the files that it links to to `linked`.

    GitHub's Markdown needs no empty line before a list and nests by two spaces; Python-Markdown
    needs the line, and four. A link to a folder becomes one to its page.
    """
    lines: list[str] = []
    in_fence = in_list = False
    shift = 0
    for number, line in enumerate(text.splitlines(), start=1):
        is_fence = bool(FENCE.match(line))
        if is_fence:
            in_fence = not in_fence
        if not in_fence and not is_fence:
            line = relinked(page, number, line, files, linked)
            is_item = bool(ITEM.match(line))
            if is_item and not in_list and lines and lines[-1]:
                lines.append("")
            in_list = is_item or (in_list and line[:1] in ("", " "))
        if in_fence and not is_fence:  # code moves with its fence
            lines.append(" " * shift + line if line else line)
            continue
        depth = len(line) - len(line.lstrip(" "))
        shift = 4 * (depth // 2) - depth if in_list else 0
        lines.append(" " * shift + line)
    return "\n".join(lines) + "\n"


def relinked(page: str, number: int, line: str, files: set[str], linked: set[str]) -> str:
    """A line with its links resolved to files."""

    def link(match: re.Match[str]) -> str:
        words, address = match.groups()
        path, hash_, anchor = address.partition("#")
        if not path or ":" in path:
            return match[0]
        name = os.path.normpath(PurePosixPath(page).parent / path)
        if f"{name}/README.md" in files:
            name, path = f"{name}/README.md", f"{path.rstrip('/')}/README.md"
        if name not in files:
            raise BrokenLinkError(f"{page}:{number}: {address} leads to no file of the repository")
        if name.startswith(LEFT_OUT):
            return words[1:-1]
        linked.add(name)
        return f"{words}({path}{hash_}{anchor})"

    return LINK.sub(link, line)


def main() -> None:
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else SITE
    if site.is_dir() and any(site.iterdir()) and not (site / "404.html").is_file():
        sys.exit(f"docs: {site} is no site, and would be replaced; give a new folder")
    try:
        build(site)
    except BrokenLinkError as error:
        sys.exit(f"docs: {error}")
    except subprocess.CalledProcessError:
        sys.exit("docs: MkDocs refused the pages (see above)")
    print(f"docs: {site}/index.html")


if __name__ == "__main__":
    main()
