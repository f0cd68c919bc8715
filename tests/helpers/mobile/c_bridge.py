"""An HTTP server for a program over the C library, so that any client of the API can use it.

Each request is one of mlcc.h's; a client that disconnects cancels its call.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any

from mlcc.embedded.c.codes import Kind
from tests.helpers.mobile.c_host import NULL, Event, Host, Name
from tests.helpers.mobile.c_tokenizer import answering

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
        """The pieces of the answer; None if the client disconnected. END is not included."""
        while True:
            event: Event | None = None
            with suppress(Empty):
                event = get(timeout=_LOOK_S)
            if self._left():
                yield None
                return
            if event is None:
                continue
            yield event
            if event.kind == Kind.END:
                return

    def _left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

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


ROOT = Path(__file__).parents[3]


@contextmanager
def bridge(program: Sequence[str], model: Path, path: str = NULL) -> Iterator[str]:
    """The URL under which a model answers, with its tokenizer by callbacks if the program asks for
    them. path: more places of Python's modules. In a process of its own, or the client's threads
    would hold up the program's events."""
    command = [sys.executable, "-m", "tests.helpers.mobile.c_bridge", str(model), path, *program]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    try:
        url = process.stdout.readline().strip()
        assert url, "the bridge did not start; see above"
        yield url
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main(model: str, path: str, *program: str) -> None:
    """Serve until the standard input ends."""
    with Host(program, answering(Path(model))) as host:
        # Without a path nothing but the standard library and the zip: no numpy, no TVM.
        reply = host.start(path=path)
        assert reply.c == 0, reply
        engine = host.create(callbacks=3, model=model)
        host.ready()
        server = _Server(host, engine)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        sys.stdin.read()
        server.shutdown()
        host.order(Name.CLOSE, a=engine)


if __name__ == "__main__":
    main(*sys.argv[1:])
