"""A hub on 127.0.0.1 with one repository, answering the calls that huggingface_hub makes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/tiny"


@dataclass
class FakeHub:
    """`log` holds "METHOD path [range]" of every request; the knobs may change between calls."""

    files: dict[str, bytes]
    revisions: tuple[str, ...] = ("main", "refs/pr/1", COMMIT)
    token: str | None = None
    gated: bool = False
    cuts: dict[str, int] = field(default_factory=dict)
    """Break the connection after so many bytes of a file, the first time."""
    stall: threading.Event | None = None
    """Send no byte of a file before this is set; `stalled` is set once a client waits."""
    stalled: threading.Event = field(default_factory=threading.Event)
    status: int | None = None
    log: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve `hub` until the block ends; its `url` is set."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        wanted = self.headers.get("Range", "")
        hub.log.append(f"{self.command} {path} {wanted}".strip())
        allowed = hub.token is None or self.headers.get("Authorization") == f"Bearer {hub.token}"
        if hub.status:
            self._send(b"", status=hub.status)
        elif not allowed:
            self._fail(401, "RepoNotFound")
        elif path.startswith(f"/api/models/{REPO}"):
            self._api(path.removeprefix(f"/api/models/{REPO}").strip("/"))
        elif path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
            self._file(path.removeprefix(f"/{REPO}/resolve/{COMMIT}/"), wanted)
        else:
            self._fail(404, "RepoNotFound")

    def _api(self, rest: str) -> None:
        kind, _, revision = rest.partition("/")
        if kind and revision not in self.hub.revisions:
            self._fail(404, "RevisionNotFound")
        elif kind == "tree":
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                for name, data in self.hub.files.items()
            ]
            self._send(json.dumps(tree).encode(), type="application/json")
        else:
            siblings = [{"rfilename": name} for name in self.hub.files]
            info = {"id": REPO, "sha": COMMIT, "siblings": siblings}
            self._send(json.dumps(info).encode(), type="application/json")

    def _file(self, name: str, wanted: str) -> None:
        data = self.hub.files.get(name)
        if self.hub.gated:
            return self._fail(403, "GatedRepo")
        if data is None:
            return self._fail(404, "EntryNotFound")
        start = int(wanted.removeprefix("bytes=").partition("-")[0] or 0) if wanted else 0
        extra = {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            extra["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = self.hub.cuts.pop(name, None) if self.command == "GET" else None
        self._send(data[start:], status=206 if start else 200, cut=cut, **extra)

    def _fail(self, status: int, code: str) -> None:
        self._send(b"", status=status, **{"X-Error-Code": code, "X-Error-Message": code})

    def _send(
        self,
        body: bytes,
        *,
        status: int = 200,
        type: str = "",
        cut: int | None = None,
        **extra: str,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if type:
            self.send_header("Content-Type", type)
        for name, value in extra.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and self.hub.stall and "ETag" in extra:
            self.hub.stalled.set()
            self.hub.stall.wait()
        elif self.command == "GET":
            self.wfile.write(body if cut is None else body[:cut])
            self.close_connection = cut is not None and cut < len(body)


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
