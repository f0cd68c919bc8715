"""HTTP for a program over the C library, so that any client of the API can talk to it.

Each request is one of mlcc.h's; a client that goes away cancels its call.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty
from threading import Thread
from typing import Any

from c_host import Event, Host, Name

from mlcc.embedded.c.codes import Kind

_LOOK_S = 0.02


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: Host, engine: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.host, self.engine = host, engine


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # whatever the method is
            return self._answer
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        host, engine = self.server.host, self.server.engine
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = host.ask(engine, self.path, self._body(), self.command, headers)
        for event in self._events(call.events.get):
            if event is None:
                host.order(Name.CANCEL, a=engine, b=call.number)
                self.close_connection = True
                return
            self._write(event)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _events(self, get: Any) -> Iterator[Event | None]:
        """As they come; None if the client went away, and END is not among them."""
        while True:
            try:
                event: Event = get(timeout=_LOOK_S)
            except Empty:
                if self._left():
                    yield None
                    return
                continue
            yield event
            if event.kind == Kind.END:
                return

    def _left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _write(self, event: Event) -> None:
        try:
            if event.kind == Kind.HEAD:
                self.send_response_only(event.status)
                for name, value in event.json.items():
                    self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
            elif event.kind == Kind.BODY and event.data:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event.data), event.data))
            elif event.kind == Kind.END:
                assert event.status == 0, event
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the next look finds that it left


@contextmanager
def http(host: Host, engine: int) -> Iterator[str]:
    """The URL under which an engine answers."""
    server = _Server(host, engine)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
