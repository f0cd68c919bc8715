"""The Python packages that a packed folder brings: of TVM's wheel the runtime alone.

They are copied from installed packages by the file lists of their wheels, so nothing is downloaded.
TVM's compiler, headers and sources stay behind: 25 MB travel instead of 320.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path

_METADATA = r".*\.dist-info/(METADATA|RECORD)"
_MODULES = r".*\.(py|so)"
KEPT = {
    "apache-tvm": r"tvm/(?!web/|3rdparty/).*\.py|tvm/lib/libtvm_runtime\w*\.so",
    "apache-tvm-ffi": r"tvm_ffi/(?!src/|include/|3rdparty/|cython/|stub/).*\.(py|so)",
    "ml-dtypes": _MODULES,
    "typing-extensions": _MODULES,
    "jinja2": _MODULES,
    "markupsafe": _MODULES,
    "tokenizers": _MODULES,
    "wgpu": r"wgpu/resources/libwgpu_native-release\.so",
    "nvidia-cuda-runtime": r"nvidia/.*/libcudart\.so\.\d+",
}
"""Of each distribution, the files that stay, beside its metadata."""
_NUMPY = {"numpy": r"(?!numpy/(.*/)?tests/)(numpy/.*\.(py|so)|numpy\.libs/.*)"}


def copy_packages(into: Path, source: Path | None = None, *, numpy: bool = False) -> str:
    """Copy the packages of KEPT. source: a site-packages folder; None = those of this Python.

    Returns the Python that they are for, as in "3.12". Raises FileNotFoundError.
    """
    for name, pattern in (KEPT | (_NUMPY if numpy else {})).items():
        _copy(_find(name, source), re.compile(f"{pattern}|{_METADATA}"), into)
    return python_of(into)


def python_of(site: Path) -> str:
    """The version of Python that the packages are for. Raises FileNotFoundError."""
    for path in (site / "tvm_ffi").glob("core.*.so"):
        if match := re.search(r"cpython-(\d)(\d+)", path.name):
            return f"{match[1]}.{match[2]}"
        return "any"  # for the stable ABI
    raise FileNotFoundError(f"{site}: tvm_ffi's extension module is not there")


def _find(name: str, source: Path | None) -> Distribution:
    """An installed distribution, however its name is spelled."""
    folders: Sequence[str] = sys.path if source is None else [str(source)]
    for found in Distribution.discover(path=list(folders)):
        if re.sub(r"[-_.]+", "-", found.metadata["Name"] or "").lower() == name:
            return found
    command = f"pip install --target {source or 'DIR'} {name}"
    where = "this Python" if source is None else str(source)
    raise FileNotFoundError(f"{name} is not installed in {where}; type `{command}`")


def _copy(distribution: Distribution, kept: re.Pattern[str], into: Path) -> None:
    for file in distribution.files or ():
        if kept.fullmatch(file.as_posix()):
            path = into / file.as_posix()
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(distribution.locate_file(file)), path)
