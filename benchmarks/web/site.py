"""A static site on this machine that counts the bytes it sends: ranges, types, no compression.

For this benchmark only: no index pages, no security beyond staying inside its folders.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".css": "text/css",
}
CHUNK = 1 << 20


class Site:
    """Folders by URL prefix, served on a free port until `close`."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self.sent: Counter[Path] = Counter()
        """Bytes sent of each file; clear it before a visit."""
        site = self

        class Handler(_Handler):
            roots_of_site, sent = {p: r.resolve() for p, r in roots.items()}, site.sent

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of a file, whole or one range of it."""

    protocol_version = "HTTP/1.1"
    roots_of_site: dict[str, Path]
    sent: Counter[Path]

    def do_GET(self) -> None:
        path = self._file()
        if path is None:
            self._start(HTTPStatus.NOT_FOUND, 0)
            return
        size = path.stat().st_size
        given = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if given is None:
            self._start(HTTPStatus.OK, size, path)
            self._send(path, 0, size)
            return
        first, last = int(given[1]), min(int(given[2] or size - 1), size - 1)
        if first > last:
            self._start(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0)
            return
        extra = {"content-range": f"bytes {first}-{last}/{size}"}
        self._start(HTTPStatus.PARTIAL_CONTENT, last + 1 - first, path, extra)
        self._send(path, first, last + 1 - first)

    do_HEAD = do_GET

    def _file(self) -> Path | None:
        url = unquote(urlsplit(self.path).path)
        for prefix, root in self.roots_of_site.items():
            path = (root / url.removeprefix(prefix)).resolve()
            if url.startswith(prefix) and path.is_relative_to(root) and path.is_file():
                return path
        return None

    def _start(
        self,
        status: HTTPStatus,
        size: int,
        path: Path | None = None,
        extra: dict[str, str] | None = None,
    ) -> None:
        """Status and headers. The page is cross-origin isolated, which threads of wasm require."""
        self.send_response(status)
        headers = {
            "content-length": str(size),
            "content-type": TYPES.get(path.suffix if path else "", "application/octet-stream"),
            "accept-ranges": "bytes",
            "cache-control": "public, max-age=3600" if path else "no-store",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-embedder-policy": "require-corp",
        }
        for name, value in (headers | (extra or {})).items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, path: Path, start: int, count: int) -> None:
        if self.command == "HEAD":
            return
        with path.open("rb") as file:
            file.seek(start)
            while count and (chunk := file.read(min(count, CHUNK))):
                self.wfile.write(chunk)
                self.sent[path] += len(chunk)
                count -= len(chunk)

    def log_message(self, format: str, *args: object) -> None:
        """The benchmark's output is a table, not a log."""
