"""Files over HTTP that are on a fixed list: a name that is not on it is not looked for on the disk.
With ranges, conditions and compression, and under a Content-Security-Policy.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Mapping
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
"""Not the system's table: it differs, and a browser compiles only what is application/wasm."""


def policy(elsewhere: bool) -> str:
    """The Content-Security-Policy of files. A script comes from here or not at all; WebAssembly may
    be compiled. `elsewhere`: a model may be fetched from where the visitor says, which is the one
    thing that leaves this host."""
    more = " https: http://localhost:* http://127.0.0.1:*" if elsewhere else ""
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'wasm-unsafe-eval'",
            f"connect-src 'self'{more}",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


TRUSTED = "; require-trusted-types-for 'script'; trusted-types default"
"""Of the page itself beside that: no string becomes HTML or a script, so that nothing that a model
says can. `web/page/trusted.ts` is the default."""

SECURITY = {
    "Content-Security-Policy": policy(elsewhere=True),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_CODE = (".css", ".html", ".js", ".mjs", ".svg", ".wasm")
_GZIP_LEVEL = 4
"""Within 4 % of the smallest, in less than half its time."""

_HASHED = re.compile(r"assets/.+-[\w-]{8}\.\w+")
"""What the page's build names after its content: another content has another name."""


@dataclass(frozen=True)
class StaticFiles:
    """The files that may be asked for, by the path after their prefix."""

    files: Mapping[str, Path]
    packs: bool = False
    """Code goes compressed to whom takes it so. Not a model: it is fetched in ranges."""
    elsewhere: bool = True
    """Whether the page may fetch a model from another host."""

    async def answer(self, request: Request) -> Response:
        """GET and HEAD, with ranges and conditions. 404 for what is not listed."""
        return await self.send(request, request.path_params["name"])

    async def send(self, request: Request, name: str) -> Response:
        """The file of a name, which is 404 if it is not listed."""
        path = self.files.get(name)
        try:
            stat = await asyncio.to_thread(path.stat) if path else None
        except OSError:
            stat = None  # it was there when the server started
        if path is None or stat is None:
            return not_found(f"there is no {request.url.path[:80]} here")
        whole: Response = FileResponse(
            path,
            stat_result=stat,
            headers=headers(name, self.elsewhere),
            media_type=_media_type(path),
        )
        if self.packs and path.suffix in _CODE and _takes_gzip(request):
            whole = await _packed(whole, path, stat.st_mtime_ns)
        if request.headers.get("if-none-match") == whole.headers["etag"]:
            kept = ("etag", "cache-control", "content-security-policy")
            return Response(status_code=304, headers={k: whole.headers[k] for k in kept})
        return whole


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "") and "range" not in request.headers


async def _packed(whole: Response, path: Path, changed: int) -> Response:
    """The same answer with its body compressed, which makes it another entity."""
    kept = {k: v for k, v in whole.headers.items() if k not in ("content-length", "accept-ranges")}
    own = {"etag": whole.headers["etag"][:-1] + '-gzip"', "content-encoding": "gzip"}
    data = await asyncio.to_thread(_gzip, path, changed)
    return Response(data, headers={**kept, **own, "vary": "accept-encoding"})


@cache
def _gzip(path: Path, changed: int) -> bytes:
    """A file compressed once, until it changes: 4 MB for the whole page, 0.2 s."""
    return gzip.compress(path.read_bytes(), _GZIP_LEVEL)


def headers(name: str, elsewhere: bool = True) -> dict[str, str]:
    """What goes with the file of a name."""
    is_fixed = _HASHED.fullmatch(name)
    cache = "public, max-age=31536000, immutable" if is_fixed else "no-cache"
    rules = policy(elsewhere) + (TRUSTED if name in ("", INDEX) else "")
    return {"Cache-Control": cache, **SECURITY, "Content-Security-Policy": rules}


def _media_type(path: Path) -> str:
    return MEDIA_TYPES.get(path.suffix, "application/octet-stream")


def not_found(message: str) -> Response:
    """404, as the API says it."""
    error = NotFoundError(message, code="not_found")
    return JSONResponse(error_body(error), error.http_status, SECURITY)
