"""The chat page and its model over HTTP: what is sent, as what, and all that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli.tiny_checkpoint import write_checkpoint
from click.testing import CliRunner
from server_process import RunningServer, running
from starlette.testclient import TestClient

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import LibraryInfo
from mlcc.commands.serve import serve_command
from mlcc.errors import ArtifactError, MlccError, UnsupportedError
from mlcc.server import web
from mlcc_targets.wasm.build import cache_folder

sys.path.append(str(Path(__file__).parents[1] / "artifact"))
from small_artifact import make

WASM = b"\x00asm" + bytes(range(256)) * 8


def for_browsers(manifest: Manifest) -> Manifest:
    return replace(
        manifest,
        target=replace(manifest.target, name="webgpu", device="webgpu", arch="wasm32"),
        library=LibraryInfo(path="LICENSE", kind="wasm"),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make(tmp_path_factory.mktemp("model") / "tiny", change=for_browsers)
    (folder / "notes.txt").write_text("not in the manifest")
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build of the page looks like."""
    top = tmp_path_factory.mktemp("site")
    (top / "secret.txt").write_text("beside the page")
    page = top / "page"
    for name, data in {
        "index.html": b"<!doctype html><title>mlcc</title>",
        "worker.js": b"export {};",
        "service_worker.js": b"self;",
        "assets/index-BLEe-uZw.js": b"import './worker.js';",
        "assets/index-BlXaiE2g.css": b"body { margin: 0 }",
        "pyodide/pyodide.asm.wasm": WASM,
    }.items():
        path = page / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return page


@pytest.fixture
def built(page: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page where a clone would have built it."""
    monkeypatch.setattr(web, "_IN_CLONE", page)
    return page


@pytest.fixture
def site(built: Path, model: Path) -> Iterator[TestClient]:
    with TestClient(web.create_page_app(model), follow_redirects=False) as client:
        yield client


@pytest.fixture(scope="module")
def with_api(page: Path, model: Path) -> Iterator[RunningServer]:
    with running("--api-key", "k", "--web", str(page), str(model)) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("", "text/html; charset=utf-8"),
        ("index.html", "text/html; charset=utf-8"),
        ("worker.js", "text/javascript; charset=utf-8"),
        ("assets/index-BlXaiE2g.css", "text/css; charset=utf-8"),
        ("pyodide/pyodide.asm.wasm", "application/wasm"),
        ("model/mlcc.json", "application/json"),
        ("model/tokenizer.json", "application/json"),
        ("model/chat_template.jinja", "text/plain; charset=utf-8"),
        ("model/weights-00001-of-00001.safetensors", "application/octet-stream"),
    ],
)
def test_each_file_is_sent_as_what_it_is(
    site: TestClient, page: Path, model: Path, path: str, media_type: str
) -> None:
    answer = site.get(f"/web/{path}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    inside = model / path[6:] if path.startswith("model/") else page / (path or "index.html")
    assert answer.content == inside.read_bytes()


@pytest.mark.parametrize(
    ("sent", "status", "part", "told"),
    [
        ("bytes=0-3", 206, slice(0, 4), f"bytes 0-3/{len(WASM)}"),
        ("bytes=100-", 206, slice(100, None), f"bytes 100-{len(WASM) - 1}/{len(WASM)}"),
        ("bytes=-5", 206, slice(-5, None), f"bytes {len(WASM) - 5}-{len(WASM) - 1}/{len(WASM)}"),
        ("bytes=5000-5001", 416, None, f"bytes */{len(WASM)}"),
    ],
)
def test_ranges(site: TestClient, sent: str, status: int, part: slice | None, told: str) -> None:
    answer = site.get("/web/pyodide/pyodide.asm.wasm", headers={"Range": sent})
    assert answer.status_code == status
    assert answer.headers["content-range"] == told
    if part is not None:
        assert answer.content == WASM[part]


def test_the_page_is_compressed_for_whom_takes_it_so_and_the_model_is_not(
    site: TestClient, model: Path
) -> None:
    path = "/web/pyodide/pyodide.asm.wasm"
    packed = site.get(path, headers={"Accept-Encoding": "gzip, br"})
    plain = site.get(path, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and packed.content == plain.content == WASM
    assert int(packed.headers["content-length"]) < len(WASM) // 2
    assert packed.headers["content-type"] == plain.headers["content-type"] == "application/wasm"
    assert packed.headers["etag"] != plain.headers["etag"]
    again = {"Accept-Encoding": "gzip", "If-None-Match": packed.headers["etag"]}
    assert site.get(path, headers=again).status_code == 304
    raw = site.get("/web/model/tokenizer.json", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in raw.headers


def test_only_what_is_named_by_its_content_is_kept_unasked(site: TestClient) -> None:
    for name in ("assets/index-BLEe-uZw.js", "assets/index-BlXaiE2g.css"):
        assert "immutable" in site.get(f"/web/{name}").headers["cache-control"]
    for name in (
        "",
        "worker.js",
        "service_worker.js",
        "model/mlcc.json",
        "pyodide/pyodide.asm.wasm",
    ):
        answer = site.get(f"/web/{name}")
        assert answer.headers["cache-control"] == "no-cache"
        again = site.get(f"/web/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_a_policy_without_other_hosts_scripts_on_every_answer(site: TestClient) -> None:
    for path in ("/web/", "/web/worker.js", "/web/model/mlcc.json", "/web/nothing", "/nothing"):
        headers = site.get(path).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'self'"
        assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
        assert policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/web/model/notes.txt",
        "/web/model/",
        "/web/model",
        "/web/model/../../secret.txt",
        "/web/../secret.txt",
        "/web/..%2fsecret.txt",
        "/web/%2e%2e/secret.txt",
        "/web/assets",
        "/web/assets/",
        "/web//etc/passwd",
        "/web/model//etc/passwd",
        "/web/index.html%00.js",
    ],
)
def test_what_is_not_listed_is_not_there(with_api: RunningServer, path: str) -> None:
    """Asked for byte by byte: most clients tidy a path before they send it."""
    connection = HTTPConnection(with_api.url.removeprefix("http://"), timeout=60)
    connection.putrequest("GET", path)
    connection.putheader("Authorization", "Bearer k")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 404
    assert b"beside the page" not in answer.read()
    connection.close()


def test_a_link_out_of_the_model_is_refused(model: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "tiny", change=for_browsers)
    outside = tmp_path / "tokenizer.json"
    (folder / "tokenizer.json").rename(outside)
    (folder / "tokenizer.json").symlink_to(outside)
    with pytest.raises(ArtifactError, match="leaves the folder"):
        web.model_files(folder)


def test_a_file_that_has_gone_is_a_404(built: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "tiny", change=for_browsers)
    with TestClient(web.create_page_app(folder)) as client:
        (folder / "tokenizer.json").unlink()
        answer = client.get("/web/model/tokenizer.json")
    assert answer.status_code == 404 and "tokenizer.json" in answer.json()["error"]["message"]


def test_the_way_to_the_page_and_no_api_beside_it(site: TestClient) -> None:
    for path in ("/", "/web"):
        answer = site.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, "/web/")
    answer = site.get("/v1/models")
    assert answer.status_code == 404
    assert "in the browser" in answer.json()["error"]["message"]
    assert site.post("/web/").status_code == 405


def test_beside_an_api_the_page_asks_for_no_key(with_api: RunningServer) -> None:
    with httpx.Client(base_url=with_api.url, timeout=60) as client:
        assert client.get("/web/").status_code == 200
        assert client.get("/web/model/mlcc.json").status_code == 200
        assert client.get("/v1/models").status_code == 401
        key = {"Authorization": "Bearer k"}
        assert client.get("/v1/models", headers=key).status_code == 200
        assert client.get("/").headers["location"] == "/web/"


def test_a_server_without_a_page_says_how_to_have_one(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for path in ("/web", "/web/", "/web/model/mlcc.json"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert "mlcc serve MODEL --web FOLDER" in answer.json()["error"]["message"]
        assert client.get("/").status_code == 404


def test_a_page_that_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_IN_CLONE", tmp_path)
    with pytest.raises(UnsupportedError, match=r"python3 dev\.py web"):
        web.page_folder()


def refusal(*arguments: str) -> str:
    error = CliRunner().invoke(serve_command, arguments).exception
    assert isinstance(error, MlccError), repr(error)
    return error.message


def test_a_model_for_another_target_is_refused(built: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "tiny")
    assert "target 'cpu', which no browser runs" in refusal("x", "--web", str(other))


@pytest.mark.parametrize("option", ["--threads", "--context", "--max-batch", "--device", "--web"])
def test_nothing_is_asked_of_an_engine_that_is_not_here(model: Path, option: str) -> None:
    assert f"leave out {option}" in refusal(str(model), option, "16")


@pytest.fixture(params=["compiled", "checkpoint"])
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> list[str]:
    """A model for browsers as it is given to `mlcc serve`."""
    if request.param == "compiled":
        return [str(request.getfixturevalue("model"))]
    runtime = cache_folder()  # compiling one takes a minute or two
    runtime.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mlcc").mkdir()
    (tmp_path / "mlcc" / runtime.name).symlink_to(runtime)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return [str(write_checkpoint(tmp_path / "tiny")), "--target", "webgpu", "--context", "64"]


def test_mlcc_serve_of_a_model_for_browsers(page: Path, served: list[str]) -> None:
    """The command as a process: it says where the page is, serves it, and ends politely."""
    code = (
        "import sys; from pathlib import Path; from mlcc.server import web; "
        "web._IN_CLONE = Path(sys.argv.pop(1)); from mlcc.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(page), "serve", *served, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout
        said = process.stdout.readline()
        url = next(word for word in said.split() if word.startswith("http"))
        assert url.endswith("/web/")
        assert httpx.get(url, timeout=60).content == (page / "index.html").read_bytes()
        assert "library" in httpx.get(f"{url}model/mlcc.json", timeout=60).json()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode in (0, 143, -15)
