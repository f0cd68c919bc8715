"""The documentation as a site: every tracked page of Markdown, at its place in the repository.

    python -m tools.site [FOLDER]

Pages are written for whoever reads them in the repository. Here they are copied to where MkDocs
looks for them (`mkdocs.yml` at the root says how they look), with what they link to, and every link
is checked: one that leads nowhere is an error, an anchor too. What pages show comes from the site
alone, so that it needs no network.
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
"""What `docs_dir` in mkdocs.yml names."""
SITE = ROOT / "build" / "docs" / "site"
LEFT_OUT = ("dist/", "tests/")
"""Pages for who works in these folders only."""

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
    """Material's notice of what becomes of MkDocs is not ours to print."""
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}


def tracked() -> set[str]:
    """The repository's files: as git has them, with those that are new."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def stage(files: set[str], into: Path) -> None:
    """Copy the pages among `files`, and the files that they link to, as MkDocs reads them."""
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
    """A page as Python-Markdown reads it; adds the files that it links to to `linked`.

    GitHub's Markdown begins a list without an empty line before it and nests one by two spaces;
    Python's wants the line, and four. A link to a folder is one to its page.
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
    """A line whose links lead to files."""

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
    try:
        build(site)
    except BrokenLinkError as error:
        sys.exit(f"docs: {error}")
    except subprocess.CalledProcessError:
        sys.exit("docs: MkDocs refused the pages (see above)")
    print(f"docs: {site}/index.html")


if __name__ == "__main__":
    main()
