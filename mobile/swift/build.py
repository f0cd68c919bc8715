"""Runs SwiftPM on this package: `python mobile/swift/build.py build | test | run ...`.

    python mobile/swift/build.py run mlcc-chat MODEL "What is 17 + 25?"
    python mobile/swift/build.py test --model MODEL

Builds the C library first, to build/mobile/c, if it is missing or older than its sources; not if
$MLCC_LIBRARIES names another. Swift is `swift` of the path with `swiftc` beside it, else that of a
Debian root which tools/swift_root.sh makes once, as root. --model sets $MLCC_DEMO: without it,
tests that need a model are skipped. Run it with the Python that is to be embedded. Uses the
standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SWIFT_ROOT = ROOT / "tools" / "swift_root.sh"
LIBRARIES = ROOT / "build" / "mobile" / "c"
SCRATCH = ROOT / "build" / "mobile" / "swift"
"""What SwiftPM builds; a second build compiles only what has changed."""
SITE = Path(sysconfig.get_path("purelib")).resolve()
SYSTEM = ("/usr", "/usr/local")
"""Prefixes of Pythons that the root must not see as a whole: it has its own /usr."""


def is_installed() -> bool:
    """Whether this machine has Swift itself. `swift` alone may be OpenStack's client."""
    return bool(shutil.which("swift") and shutil.which("swiftc"))


def command(words: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """A command that needs Swift or what Swift built, here or in the root. folders: further ones
    that it must see, at the same paths."""
    if is_installed():
        return [*words]
    shown = [part for folder in (ROOT, *python_parts(), *folders) for part in ("--mount", folder)]
    return [str(SWIFT_ROOT), "run", *map(str, shown), *words]


def python_parts() -> Iterator[Path]:
    """The folders and files of the embedded Python and of its packages."""
    yield SITE
    if sys.base_prefix not in SYSTEM:
        yield Path(sys.base_prefix)
        return
    yield Path(sysconfig.get_path("stdlib"))
    name = sysconfig.get_config_var("INSTSONAME") or ""
    library = Path(sysconfig.get_config_var("LIBDIR") or "/", name)
    if name and library.exists():
        yield library


def environment(**more: str) -> dict[str, str]:
    """Variables of a command, in which the package finds the C library and Python's packages."""
    given = {"MLCC_LIBRARIES": str(LIBRARIES), "MLCC_PYTHON_PATH": str(SITE)}
    return {**given, **os.environ, **more}


def package(
    action: str, *words: str, scratch: Path = SCRATCH, folders: Sequence[Path] = ()
) -> list[str]:
    """The command `swift ACTION` for this package, without an index for editors, which takes an
    eighth of a build."""
    options = ["--package-path", str(FOLDER), "--scratch-path", str(scratch)]
    return command(["swift", action, *options, "--disable-index-store", *words], folders)


def build_library() -> None:
    """Build libmlcc where its sources are newer. Raises SystemExit."""
    if "MLCC_LIBRARIES" in os.environ:
        return
    library = LIBRARIES / "libmlcc.so"
    sources = [*(FOLDER.parent / "c").rglob("*.*"), *(ROOT / "runtime" / "mlcc").rglob("*.py")]
    newest = max(path.stat().st_mtime for path in sources)
    if library.exists() and library.stat().st_mtime > newest:
        return
    done = subprocess.run([sys.executable, str(FOLDER.parent / "c" / "build.py")], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def make_root() -> None:
    """Make the root where neither it nor Swift is here. Raises SystemExit."""
    if not is_installed() and subprocess.run([str(SWIFT_ROOT), "make"], check=False).returncode:
        sys.exit("mobile/swift: there is no Swift; see above, or install it from swift.org")


def main(words: Sequence[str]) -> int:
    """The command line."""
    if not words or words[0] not in ("build", "test", "run"):
        print(__doc__)
        return 2
    words, more, folders = with_model(words)
    make_root()
    build_library()
    given = {word: Path(word).resolve() for word in words[1:] if Path(word).is_dir()}
    words = [str(given.get(word, word)) for word in words]
    return call(package(*words, folders=(*folders, *given.values())), environment(**more))


def with_model(words: Sequence[str]) -> tuple[list[str], dict[str, str], list[Path]]:
    """The words without `--model FOLDER`, its variable, and the folder."""
    left = [*words]
    if "--model" not in left[:-1]:
        return left, {}, []
    at = left.index("--model")
    model = Path(left[at + 1]).resolve()
    del left[at : at + 2]
    return left, {"MLCC_DEMO": str(model)}, [model]


def call(words: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command. Returns its exit code."""
    return subprocess.run(words, env=dict(variables), check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
