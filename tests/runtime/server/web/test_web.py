"""The chat page and its model over HTTP: the served files with their types, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.server import web
from mlcc.server.http import static_files
from tests.runtime.server.helpers.server_process import RunningServer, running
from tests.runtime.server.helpers.small_site import WASM, make_model, make_page


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_model(tmp_path_factory.mktemp("model") / "tiny")
    (folder / "notes.txt").write_text("not in the manifest")
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("site")
    (top / "secret.txt").write_text("beside the page")
    return make_page(top / "page")


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
    ("sent", "status", "part", "expected"),
    [
        ("bytes=0-3", 206, slice(0, 4), f"bytes 0-3/{len(WASM)}"),
        ("bytes=100-", 206, slice(100, None), f"bytes 100-{len(WASM) - 1}/{len(WASM)}"),
        ("bytes=-5", 206, slice(-5, None), f"bytes {len(WASM) - 5}-{len(WASM) - 1}/{len(WASM)}"),
        ("bytes=5000-5001", 416, None, f"bytes */{len(WASM)}"),
    ],
)
def test_ranges(
    site: TestClient, sent: str, status: int, part: slice | None, expected: str
) -> None:
    answer = site.get("/web/pyodide/pyodide.asm.wasm", headers={"Range": sent})
    assert answer.status_code == status
    assert answer.headers["content-range"] == expected
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


def test_the_whole_policy() -> None:
    """One rule more, or one less, is another page's safety."""
    rules = [
        "default-src 'self'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "img-src 'self' data:",
        "media-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    assert static_files.policy([]).split("; ") == rules
    rules[4] += " https: http://localhost:* http://127.0.0.1:*"
    assert static_files.policy(static_files.ANY_HOST).split("; ") == rules


def test_a_policy_without_other_hosts_scripts_on_every_answer(site: TestClient) -> None:
    for path in ("/web/", "/web/worker.js", "/web/model/mlcc.json", "/web/nothing", "/nothing"):
        headers = site.get(path).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'self'"
        assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
        assert policy["img-src"] == "'self' data:"
        assert policy["frame-ancestors"] == "'none'"
        assert ("trusted-types" in policy) == (path == "/web/")
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
    folder = make_model(tmp_path / "tiny")
    outside = tmp_path / "tokenizer.json"
    (folder / "tokenizer.json").rename(outside)
    (folder / "tokenizer.json").symlink_to(outside)
    with pytest.raises(ArtifactError, match="leaves the folder"):
        web.model_files(folder)


def test_a_file_that_has_gone_is_a_404(built: Path, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "tiny")
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
        assert client.get("/").content == client.get("/web/").content


def test_the_page_may_reach_the_mcp_servers_that_were_named_and_no_others(page: Path) -> None:
    urls = ("https://tools.example/mcp", "http://127.0.0.1:9000/mcp")
    routes = web.page_routes(page, access=web.PageAccess(mcp=urls))
    with TestClient(Starlette(routes=routes)) as client:
        rules = client.get("/").headers["content-security-policy"]
        assert f"connect-src 'self' {' '.join(urls)};" in rules
        assert client.get("/site.json").json()["mcp"] == list(urls)


@pytest.mark.parametrize(
    "url",
    [
        "http://tools.example/mcp",
        "https://tools.example/mcp; script-src *",
        "https://tools.example/mcp https://other.example",
        "https://me:secret@tools.example/mcp",
        "https://tools.example/mcp?key=1",
        "https://tools.example/a,b",
        "https://*.example/mcp",
        "file:///etc/passwd",
        "",
    ],
)
def test_what_is_no_mcp_server_for_a_page(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no address of an MCP server"):
        web.checked_mcp(url)


def test_mcp_servers_are_written_as_browsers_do() -> None:
    assert web.checked_mcp("https://Tools.Example") == "https://tools.example/"
    assert web.checked_mcp("http://[::1]:9000/mcp") == "http://[::1]:9000/mcp"


def test_the_page_at_the_root_gets_the_api_and_its_model(page: Path, model: Path) -> None:
    """The page's files are at the root, and hide no path of the API."""
    for folder, expected in ((None, None), (model, "web/model/")):
        site = Starlette(routes=web.page_routes(page, folder))
        with TestClient(site) as client:
            assert client.get("/site.json").json() == {
                "api": "./",
                "model": expected,
                "mcp": None if folder else [],
                "loads": False,
                "pulls": False,
            }
            for name in ("", "index.html", "worker.js", "assets/index-BLEe-uZw.js"):
                inside = page / (name or "index.html")
                assert client.get(f"/{name}").content == inside.read_bytes()
            assert "immutable" in client.get("/assets/index-BLEe-uZw.js").headers["cache-control"]
            for name in ("assets/", "assets/nothing", "v1/models", "assets/../../secret.txt"):
                assert client.get(f"/{name}").status_code == 404
            rules = client.get("/").headers["content-security-policy"]
            assert "require-trusted-types-for 'script'" in rules
            assert ("connect-src 'self';" in rules) == (folder is None)
    with TestClient(Starlette(routes=web.page_routes(page, model))) as client:
        assert client.get("/web/site.json").json() == {
            "api": "../",
            "model": "model/",
            "mcp": None,
            "loads": False,
            "pulls": False,
        }


def test_a_server_whose_page_is_not_installed_says_what_to_install(tmp_path: Path) -> None:
    site = Starlette(routes=web.no_page_routes("the chat page is not here; install the wheel X"))
    with TestClient(site) as client:
        answer, head = client.get("/"), client.head("/")
    assert answer.status_code == head.status_code == 200  # where clients of Ollama look first
    assert answer.text.startswith("Ollama is running") and not head.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.count("\n") == 1
    assert (
        "at /v1" in answer.text and "The chat page is not here; install the wheel X." in answer.text
    )


def test_a_server_without_a_page_says_how_to_have_one(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for path in ("/web", "/web/", "/web/model/mlcc.json"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert "mlcc serve MODEL --web FOLDER" in answer.json()["error"]["message"]
        answer, head = client.get("/"), client.head("/")
        assert answer.status_code == head.status_code == 200
        assert answer.text.startswith("Ollama is running") and not head.text


def test_a_page_that_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_IN_CLONE", tmp_path)
    monkeypatch.setattr(web, "_FOR_SERVERS", tmp_path)
    with pytest.raises(UnsupportedError, match=r"python3 dev\.py web"):
        web.page_folder()
