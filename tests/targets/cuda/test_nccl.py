"""The binding of NCCL: its declarations equal those of NVIDIA's header, all functions are in
NVIDIA's library, and a missing library is reported. test_gpu_ranks.py runs it on emulated
devices."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mlcc.device.parallel.experimental import nccl
from mlcc.errors import DeviceError
from mlcc_targets import cuda_files
from tests.helpers import needs

NATIVE = Path(__file__).parents[3] / "runtime" / "native"
DECLARED = Path(__file__).with_name("nccl_declared.cc")
SCRIPT = """
from mlcc.device.parallel.experimental import nccl
from mlcc.errors import DeviceError
print(nccl.load(), len(nccl.unique_id()))
from mlcc.device.parallel.experimental.nccl import _called
try:
    _called("join", b"0" * 128, 0, 2, 0)  # the GPU that `join` looks for first is not here
except DeviceError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def nvidia() -> Path:
    """The folder of the package that brings NCCL."""
    spec = find_spec("nvidia")
    places = (spec.submodule_search_locations or ()) if spec else ()
    found = [Path(place) / "nccl" for place in places if (Path(place) / "nccl").exists()]
    if not found:
        needs.absent('needs NVIDIA\'s NCCL (pip install "mlcc[nccl]")')
    return found[0]


@pytest.mark.needs("g++")
def test_declarations_are_those_of_the_header(nvidia: Path) -> None:
    folders = [nvidia / "include", *cuda_files.include_folders()]
    includes = [f"-isystem{folder}" for folder in folders]
    words = ["g++", "-std=c++17", "-fsyntax-only", f"-I{NATIVE / 'nccl'}", *includes, str(DECLARED)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_binding_is_built_from_these_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(NATIVE))
    import build_nccl

    assert build_nccl.is_current(), "stale; run: python runtime/native/build_nccl.py"
    assert build_nccl.LIBRARY == nccl.LIBRARY


def test_it_finds_all_that_it_uses_in_nvidias_library(nvidia: Path) -> None:
    """A process of its own: of two NCCLs, one loads the first."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    version, size, *message = done.stdout.split(maxsplit=2)
    assert int(version) >= 22600 and int(size) == 128
    assert message and message[0].startswith("NCCL failed while joining the other ranks: "), message


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nccl.load.cache_clear()
    monkeypatch.setattr(cuda_files, "nccl", lambda: None)
    with pytest.raises(DeviceError, match=r'pip install "mlcc\[nccl\]"'):
        nccl.load()
    monkeypatch.setattr(nccl, "LIBRARY", tmp_path / "none.so")
    with pytest.raises(DeviceError, match=r"not built; run: python runtime/native/build_nccl\.py"):
        nccl.load()


def test_an_invalid_library_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"no library")
    script = (
        "import sys\n"
        "from mlcc_targets import cuda_files\n"
        "cuda_files.nccl = lambda: sys.argv[1]\n"
        "from mlcc.device.parallel.experimental import nccl\n"
        "from mlcc.errors import DeviceError\n"
        "try: nccl.load()\n"
        "except DeviceError as error: print(error)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "libnccl.so.2")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("NCCL does not load: ") and "libnccl.so.2" in done.stdout
