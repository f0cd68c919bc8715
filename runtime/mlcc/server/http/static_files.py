"""Static files from a fixed list: a name that is not listed is never looked up on disk. Supports
ranges, conditional requests and compression, and sets a Content-Security-Policy."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from mlcc.api.errors import NotFoundError, error_body

INDEX = "index.html"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".jinja": "text/plain; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
"""Not the system's table: it varies, and a browser compiles only application/wasm."""


ANY_HOST = ("https:", "http://localhost:*", "http://127.0.0.1:*")
"""Sources of a page that fetches models from other hosts."""


def policy(connects: Sequence[str]) -> str:
    """Return the Content-Security-Policy. Scripts load from this host only; WebAssembly may be
    compiled. Images and sounds are this host's, or data URLs: a visitor attached them. `connects`
    are the sources beside this host that the page may reach: ANY_HOST for models, or the URLs of
    MCP servers. No other connection leaves this host."""
    more = "".join(f" {source}" for source in connects)
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'wasm-unsafe-eval'",
            "img-src 'self' data:",
            "media-src 'self' data:",
            f"connect-src 'self'{more}",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


TRUSTED = "; require-trusted-types-for 'script'; trusted-types default"
"""Policy of the page itself: strings never become HTML or scripts, so model output cannot inject
any. `web/page/rendering/trusted.ts` is the default policy."""

SECURITY = {
    "Content-Security-Policy": policy(ANY_HOST),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_CODE = (".css", ".html", ".js", ".mjs", ".svg", ".wasm")
_GZIP_LEVEL = 4
"""Within 4 % of the smallest size, in less than half the time."""

_HASHED = re.compile(r"assets/.+-[\w-]{8}\.\w+")
"""Files whose name contains a hash of their content: they never change."""


@dataclass(frozen=True)
class StaticFiles:
    """The files that may be requested, by path below the prefix."""

    files: Mapping[str, Path]
    gzip_code: bool = False
    """Compress code for clients that accept it. Not for models, which are fetched in ranges."""
    connects: Sequence[str] = ANY_HOST
    """What the page may reach beside this host (`policy`)."""

    async def answer(self, request: Request) -> Response:
        """Endpoint for GET and HEAD, with ranges and conditions. 404 for unlisted names."""
        return await self.send(request, request.path_params["name"])

    async def send(self, request: Request, name: str) -> Response:
        """Return the file of a name; 404 if it is not listed."""
        path = self.files.get(name)
        try:
            stat = await asyncio.to_thread(path.stat) if path else None
        except OSError:
            stat = None  # deleted since the server started
        if path is None or stat is None:
            return not_found(f"there is no {request.url.path[:80]} here")
        whole: Response = FileResponse(
            path,
            stat_result=stat,
            headers=headers(name, self.connects),
            media_type=_media_type(path),
        )
        if self.gzip_code and path.suffix in _CODE and _takes_gzip(request):
            whole = await _compressed(whole, path, stat.st_mtime_ns)
        if request.headers.get("if-none-match") == whole.headers["etag"]:
            names = ("etag", "cache-control", "content-security-policy")
            return Response(status_code=304, headers={k: whole.headers[k] for k in names})
        return whole


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "") and "range" not in request.headers


async def _compressed(whole: Response, path: Path, changed: int) -> Response:
    """Compress a response's body; this changes its ETag."""
    copied = {
        k: v for k, v in whole.headers.items() if k not in ("content-length", "accept-ranges")
    }
    own = {"etag": whole.headers["etag"][:-1] + '-gzip"', "content-encoding": "gzip"}
    data = await asyncio.to_thread(_gzip, path, changed)
    return Response(data, headers={**copied, **own, "vary": "accept-encoding"})


@cache
def _gzip(path: Path, changed: int) -> bytes:
    """Compress a file once per version: 4 MB for the whole page, 0.2 s."""
    return gzip.compress(path.read_bytes(), _GZIP_LEVEL)


def headers(name: str, connects: Sequence[str] = ANY_HOST) -> dict[str, str]:
    """Return the headers of a file."""
    is_fixed = _HASHED.fullmatch(name)
    cache = "public, max-age=31536000, immutable" if is_fixed else "no-cache"
    rules = policy(connects) + (TRUSTED if name in ("", INDEX) else "")
    return {"Cache-Control": cache, **SECURITY, "Content-Security-Policy": rules}


def _media_type(path: Path) -> str:
    return MEDIA_TYPES.get(path.suffix, "application/octet-stream")


def not_found(message: str) -> Response:
    """Return the API's 404."""
    error = NotFoundError(message, code="not_found")
    return JSONResponse(error_body(error), error.http_status, SECURITY)
