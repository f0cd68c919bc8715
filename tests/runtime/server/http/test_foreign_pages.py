"""Requests that a web page of another origin can make a browser send. None may reach an address
that answers or changes something; Ollama's addresses, which take curl's bodies without a header,
are no exception."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from mlcc.service.http.routes import KSERVE, OLLAMA, ROUTES, Route
from tests.runtime.server.helpers.server_process import PLAIN, RunningServer, running

FORM = "application/x-www-form-urlencoded"
SIMPLE_TYPES = ("", "text/plain", FORM, "multipart/form-data; boundary=x")
"""What a page may send without asking the server first (Fetch standard, CORS-safelisted)."""
FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},  # a sandboxed frame
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},  # another port of this machine
)
POSTED = [route for route in ROUTES if route.method == "POST"]
BODY = '{"model": "toy", "messages": [], "prompt": "a"}'


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running("--hosts", "") as started:
        yield started


def post(server: RunningServer, path: str, kind: str, **headers: str) -> httpx.Response:
    found = {**headers, **({"Content-Type": kind} if kind else {})}
    return httpx.post(server.url + path, content=BODY, headers=found, timeout=60, verify=PLAIN)


@pytest.mark.parametrize("route", POSTED, ids=lambda route: route.path)
def test_a_foreign_page_is_refused(server: RunningServer, route: Route) -> None:
    path = route.path.replace("{name}", "resp_1")
    for headers in FOREIGN:
        for kind in SIMPLE_TYPES:
            answer = post(server, path, kind, **headers)
            unread = route.body is None and answer.status_code in (400, 404)
            assert answer.status_code in (403, 415) or unread, (headers, kind, answer.text)


def test_curl_without_a_header_asks_ollamas_addresses(server: RunningServer) -> None:
    """As the examples of Ollama's API do."""
    for kind in ("", FORM):
        body = '{"model": "toy", "prompt": "a", "stream": false, "options": {"num_predict": 1}}'
        headers = {"Content-Type": kind} if kind else {}
        url = f"{server.url}/api/generate"
        assert httpx.post(url, content=body, headers=headers, timeout=60).json()["done"] is True
        assert post(server, "/v1/chat/completions", kind).status_code == 415
    assert post(server, "/api/generate", "text/plain").status_code == 415
    assert all(route.any_content_type for route in OLLAMA)
    others = [route for route in ROUTES if route not in (*OLLAMA, *KSERVE)]
    assert not any(route.any_content_type for route in others)


ATTACK = """<!doctype html><title>A page of another origin</title><body><script>
const ATTEMPTS = %s
const data = (body) => { const form = new FormData(); form.append('x', body); return form; };
const fields = (body) => new URLSearchParams({ x: body });
const bodies = [(b) => b, (b) => new Blob([b]), fields, data];
const encodings = ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data'];
function submit(url, body, enctype) {
  const frame = document.createElement('iframe');
  const form = document.createElement('form');
  const field = document.createElement('input');
  frame.name = form.target = 'f' + document.querySelectorAll('iframe').length;
  Object.assign(form, { action: url, method: 'post', enctype });
  Object.assign(field, { name: body.slice(0, -1) + ', "x": "', value: '"}' });
  form.append(field);
  document.body.append(frame, form);
  return new Promise((resolve) => { frame.addEventListener('load', resolve); form.submit(); });
}
async function attack({ url, body }, number) {
  const as = (method, mode, content, headers = {}) =>
    fetch(url, { method, mode, body: content, headers }).catch(() => null);
  for (const made of bodies) await as('POST', 'no-cors', made(body));
  await as('POST', 'cors', body);
  await as('POST', 'cors', body, { 'Content-Type': 'application/json' });
  await as('DELETE', 'cors', body);
  navigator.sendBeacon(url, body);
  await Promise.race([submit(url, body, encodings[number %% 3]),
                      new Promise((resolve) => setTimeout(resolve, 2000))]);
}
Promise.all(ATTEMPTS.map(attack)).then(() => fetch('/done', { method: 'POST' }));
</script>"""
SENT = 7
"""Requests to each address that need no preflight: by fetch, sendBeacon and a form."""


@contextmanager
def page_of_another_origin(text: str) -> Iterator[tuple[int, Event]]:
    """The port of a server of this page, and the event that the page has done its work."""
    done = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        try:
            yield served.server_port, done
        finally:
            served.shutdown()
            thread.join()


def answered(server: RunningServer) -> Counter[tuple[str, str, int]]:
    """Requests by method, address and status."""
    row = r'mlcc_http_requests_total\{address="(.*?)",method="(.*?)",status="(\d+)"\} (\S+)'
    found = re.findall(row, httpx.get(f"{server.url}/metrics").text)
    return Counter({(way, path, int(code)): int(float(n)) for path, way, code, n in found})


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_no_page_in_a_real_browser_changes_anything(
    server: RunningServer, tmp_path: Path, host: str
) -> None:
    """By a name of another site, and of the same site by another port."""
    names = [route.path.replace("{name}", "resp_1") for route in POSTED]
    body = json.loads(BODY) | {"stream": False, "options": {"num_predict": 1}, "max_tokens": 1}
    assert httpx.post(f"{server.url}/api/generate", json=body, timeout=60).status_code == 200
    attempts = [{"url": server.url + path, "body": json.dumps(body)} for path in names]
    before, models = answered(server), httpx.get(f"{server.url}/v1/models").json()["data"]
    program = shutil.which("chromium") or "chromium"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    flags += [f"--user-data-dir={tmp_path}", "--no-first-run", "--disable-background-networking"]
    with page_of_another_origin(ATTACK % json.dumps(attempts)) as (port, done):
        browser = subprocess.Popen(
            [program, *flags, f"http://{host}:{port}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert done.wait(60), "the page did not finish"
        finally:
            browser.terminate()
            browser.wait(60)
    came = answered(server) - before
    for route in POSTED:
        codes = {
            code: n for (way, path, code), n in came.items() if (way, path) == ("POST", route.path)
        }
        assert sum(codes.values()) >= SENT, (route.path, codes)
        unread = {400, 404} if route.body is None else set()
        assert codes.keys() <= {403, 415} | unread, (route.path, codes)
    assert not any(way == "DELETE" for way, _, _ in came), "a preflight was granted"
    assert httpx.get(f"{server.url}/v1/models").json()["data"] == models
