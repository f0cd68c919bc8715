"""A small MCP server with streamable HTTP (2025-06-18), for tests of clients: the standard library
only. `python mcp_server.py` prints its URL.

Sessions are required; lists and results come as server-sent events, after a notification.
"""

from __future__ import annotations

import json
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "2025-06-18"
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
TOOLS = [
    {"name": "add", "description": "Adds two numbers.", "inputSchema": SCHEMA},
    {"name": "long", "description": "Gives 100 kB.", "inputSchema": {"type": "object"}},
    {"name": "fails", "description": "Fails.", "inputSchema": {"type": "object"}},
    {"name": "forget", "description": "Ends the session.", "inputSchema": {"type": "object"}},
    {"name": "bad name", "description": "Not usable.", "inputSchema": {"type": "object"}},
]
SESSIONS: set[str] = set()
CALLS: list[str] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_OPTIONS(self) -> None:
        self._answer(204)

    def do_DELETE(self) -> None:
        SESSIONS.discard(self.headers.get("Mcp-Session-Id", ""))
        self._answer(204)

    def do_GET(self) -> None:
        if self.path == "/calls":  # for the tests
            self._answer(200, json.dumps(CALLS), "application/json")
        else:
            self._answer(405)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/mcp":
            return self._answer(404)
        accepted = self.headers.get("Accept", "")
        if "application/json" not in accepted or "text/event-stream" not in accepted:
            return self._answer(406)
        method = message.get("method")
        if method == "initialize":
            return self._begin(message)
        if self.headers.get("Mcp-Session-Id") not in SESSIONS:
            return self._answer(404)
        if self.headers.get("MCP-Protocol-Version") != VERSION:
            return self._answer(400)
        if "id" not in message:
            return self._answer(202)
        params = message.get("params", {})
        result = _list(params) if method == "tools/list" else _call(params)
        if result is None:
            SESSIONS.clear()
            return self._answer(404)
        self._stream({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _begin(self, message: dict[str, Any]) -> None:
        session = secrets.token_hex(8)
        SESSIONS.add(session)
        result = {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self._answer(200, body, "application/json", {"Mcp-Session-Id": session})

    def _stream(self, message: dict[str, Any]) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}
        events = [f"event: message\r\ndata: {json.dumps(each)}\r\n\r\n" for each in (note, message)]
        self._answer(200, ": begins\r\n\r\n" + "".join(events), "text/event-stream")

    def _answer(
        self, status: int, body: str = "", kind: str = "", more: dict[str, str] | None = None
    ) -> None:
        data = body.encode()
        self.send_response(status)
        headers = {
            "Access-Control-Allow-Origin": self.headers.get("Origin", "*"),
            "Access-Control-Allow-Headers": "content-type, mcp-session-id, mcp-protocol-version",
            "Access-Control-Allow-Methods": "POST, DELETE",
            "Access-Control-Expose-Headers": "Mcp-Session-Id",
            "Content-Length": str(len(data)),
            **({"Content-Type": kind} if kind else {}),
            **(more or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed but the URL."""


def _list(params: dict[str, Any]) -> dict[str, Any]:
    """Two tools a page."""
    start = int(params.get("cursor", 0))
    more = {"nextCursor": str(start + 2)} if start + 2 < len(TOOLS) else {}
    return {"tools": TOOLS[start : start + 2], **more}


def _call(params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a tool; None ends the sessions, the first time."""
    name, given = params["name"], params["arguments"]
    CALLS.append(name)
    if name == "forget" and CALLS.count("forget") == 1:
        return None
    if name == "fails":
        return {"content": [{"type": "text", "text": "it is broken"}], "isError": True}
    text = {"add": str(given.get("a", 0) + given.get("b", 0)), "long": "\u00e4" * 50_000}
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": text.get(name, "remembered")}, picture]}


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is none."""


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
