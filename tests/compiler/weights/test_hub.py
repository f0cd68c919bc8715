"""hf:// sources against a local server, in child processes: the library reads its environment once.

Nothing leaves 127.0.0.1.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.hub import HubSource, parse_source, resolve
from tests.compiler.weights.fake_hub import COMMIT, FakeHub, serving
from tests.compiler.weights.hf_folder import hf_folder

PROGRAM = """
import sys
from mlcc.errors import MlccError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.hub import resolve
try:
    print(Checkpoint.open(resolve(sys.argv[1])).tensors.folder)
except MlccError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture
def hub(tmp_path: Path) -> FakeHub:
    folder = hf_folder(tmp_path / "tiny", LICENSE="free", chat_template__jinja="x")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    unwanted = {"pytorch_model.bin": b"x", "original/consolidated.safetensors": b"x"}
    return FakeHub(files | unwanted)


def child(
    home: Path, source: str, url: str, most_bytes: int | None = None, **environment: str
) -> subprocess.Popen[str]:
    """most_bytes: of a file that it writes; the system refuses more, as at a full disk."""
    limits = None if most_bytes is None else (most_bytes, resource.RLIM_INFINITY)
    dropped = ("HF_", "HUGGING", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http", "all_proxy")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    clean |= {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_ETAG_TIMEOUT": "2"}
    clean |= {"PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_DISABLE_XET": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, source],
        env=clean | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limits and partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits),
    )


def fetch(home: Path, source: str, url: str, **options: Any) -> tuple[int, str]:
    """Exit code, and the last printed line (of stdout on success, else of stderr)."""
    with child(home, source, url, **options) as process:
        output, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    lines = (errors if process.returncode else output).strip().splitlines()
    return process.returncode, lines[-1] if lines else ""


def test_a_model_is_fetched_once_and_then_read_offline(tmp_path: Path, hub: FakeHub) -> None:
    with serving(hub):
        code, line = fetch(tmp_path / "home", "hf://org/tiny", hub.url)
        assert code == 0, line
        folder = Path(line)
        assert folder.name == COMMIT
        patterns = {"config.json", "tokenizer.json", "model.safetensors", "LICENSE"}
        assert {path.name for path in folder.iterdir()} == patterns | {"chat_template.jinja"}
    code, line = fetch(tmp_path / "home", "hf://org/tiny", hub.url, HF_HUB_OFFLINE="1")
    assert (code, line) == (0, str(folder))


def test_a_disk_that_fills_up_and_is_cleared(tmp_path: Path, hub: FakeHub) -> None:
    size = len(hub.files["model.safetensors"])
    with serving(hub):
        code, line = fetch(tmp_path, "hf://org/tiny", hub.url, most_bytes=size - 1)
        assert code and line.startswith(
            "CapacityError: hf://org/tiny: the disk is full, or `ulimit"
        )
        assert line.endswith("free some space or move HF_HOME, and type it again to go on with it")
        code, line = fetch(tmp_path, "hf://org/tiny", hub.url)
        assert code == 0, line
    found = (Path(line) / "model.safetensors").read_bytes()
    assert found == hub.files["model.safetensors"]


def test_onnx_is_fetched_where_there_is_nothing_else(tmp_path: Path, hub: FakeHub) -> None:
    onnx = {"onnx/model.onnx": b"graph", "onnx/model.onnx_data": b"d", "onnx/model_fp16.onnx": b"h"}
    hub.files |= onnx
    with serving(hub) as served:
        assert fetch(tmp_path / "one", "hf://org/tiny", served.url)[0] == 0
        assert not [line for line in hub.log if ".onnx" in line]
        del hub.files["model.safetensors"]
        for home in (tmp_path / "two", tmp_path / "two"):  # and again from the cache
            code, line = fetch(home, "hf://org/tiny", served.url)
            assert code == 1 and "onnx/model.onnx: is no ONNX model" in line
    fetched = {line.split()[1].rpartition("/")[2] for line in hub.log if "GET" in line}
    assert {"model.onnx", "model.onnx_data"} <= fetched and "model_fp16.onnx" not in fetched


def test_offline_and_not_in_the_cache(tmp_path: Path, hub: FakeHub) -> None:
    code, line = fetch(tmp_path, "hf://org/tiny", "http://127.0.0.1:1", HF_HUB_OFFLINE="1")
    assert code and "hf://org/tiny: is not wholly in the cache and HF_HUB_OFFLINE is set" in line


def test_no_network(tmp_path: Path) -> None:
    code, line = fetch(tmp_path, "hf://org/tiny", "http://127.0.0.1:1")
    assert code and "the hub cannot be reached: check the network" in line


def test_revisions_and_the_token(tmp_path: Path, hub: FakeHub) -> None:
    hub.token = "hf_secret"
    with serving(hub):
        code, line = fetch(tmp_path, "hf://org/tiny@refs/pr/1", hub.url, HF_TOKEN="hf_secret")
        assert code == 0, line
        code, line = fetch(tmp_path, "hf://org/tiny@v9", hub.url, HF_TOKEN="hf_secret")
        assert code and "hf://org/tiny@v9: has no revision 'v9'" in line
        code, line = fetch(tmp_path / "new", "hf://org/tiny", hub.url, HF_TOKEN="hf_wrong")
        assert code and "was not found: check the name, or if private: `hf auth login`" in line
        assert "hf_" not in line


def test_not_found_and_gated(tmp_path: Path, hub: FakeHub) -> None:
    hub.gated = True
    with serving(hub):
        code, line = fetch(tmp_path, "hf://org/none", hub.url)
        assert code and line.startswith("CheckpointError: hf://org/none: was not found")
        code, line = fetch(tmp_path, "hf://org/tiny", hub.url)
        assert code and "is gated: accept its terms" in line and "HF_TOKEN" in line


def test_a_quantization_that_is_not_there(tmp_path: Path, hub: FakeHub) -> None:
    """One line with those there are, also if another one was downloaded before."""
    with serving(hub):
        code, line = fetch(tmp_path, "hf://org/tiny:Q5_0", hub.url)
        assert code and "hf://org/tiny:Q5_0: has no Q5_0; it has no GGUF files" in line
    hub.files = {"tiny-Q4_K_M.gguf": b"GGUF", "tiny-Q8_0.gguf": b"GGUF"}
    hub.files |= {"mmproj-tiny-F16.gguf": b"GGUF", "mmproj-tiny-BF16.gguf": b"GGUF"}
    with serving(hub):
        home = tmp_path / "another"
        fetch(home, "hf://org/tiny:Q8_0", hub.url)  # no valid file, but downloaded
        with child(home, "hf://org/tiny:Q5_0", hub.url) as process:
            errors = process.communicate(timeout=60)[1].strip()
        assert errors.endswith(
            "hf://org/tiny:Q5_0: has no Q5_0; there are Q4_K_M, Q8_0; type hf://org/tiny:Q4_K_M"
        )
        assert "No files matched" not in errors
    names = {path.name for path in home.rglob("*.gguf")}
    assert names == {"tiny-Q8_0.gguf", "mmproj-tiny-F16.gguf"}


def test_a_broken_download_is_resumed(tmp_path: Path, hub: FakeHub) -> None:
    weights = save({"x": np.zeros(11 << 20, np.uint8)})  # the library resumes by 10 MiB
    hub.files["model.safetensors"] = weights
    hub.cuts["model.safetensors"] = len(weights) - 10
    with serving(hub):
        code, last = fetch(tmp_path, "hf://org/tiny", hub.url)
    assert code == 0, last
    assert (Path(last) / "model.safetensors").read_bytes() == weights
    assert any(line.endswith("model.safetensors bytes=10485760-") for line in hub.log)


def test_a_hub_in_trouble(tmp_path: Path, hub: FakeHub) -> None:
    hub.status = 418
    with serving(hub):
        code, line = fetch(tmp_path, "hf://org/tiny", hub.url)
    assert code and "hf://org/tiny: the hub refused" in line and "418" in line


def test_ctrl_c_ends_a_stalled_download(tmp_path: Path, hub: FakeHub) -> None:
    hub.stall = threading.Event()
    with serving(hub), child(tmp_path, "hf://org/tiny", hub.url) as process:
        assert hub.stalled.wait(30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        hub.stall.set()
    assert process.returncode == 130 and errors.endswith("Aborted!\n")


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://name", "hf://a/b/c", "hf://a/b@", "hf://a/b@x y", "hf://../b", "hf://a/"],
)
def test_bad_sources(text: str) -> None:
    with pytest.raises(CheckpointError, match="type hf://org/name or hf://org/name@revision"):
        resolve(text)


def test_good_sources() -> None:
    assert parse_source("hf://org/a.b-c_1") == HubSource("org/a.b-c_1")
    assert parse_source("hf://org/name@refs/pr/1") == HubSource("org/name", "refs/pr/1")
    assert str(parse_source("hf://org/name@v1")) == "hf://org/name@v1"
    assert resolve("some/folder") == Path("some/folder")
