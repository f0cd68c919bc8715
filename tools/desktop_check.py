"""Checks an installed mlcc on a Windows machine or a Mac with a compiled model, in about a minute:

    pip install "mlcc-VERSION-py3-none-win_amd64.whl[serve]"      (Mac: ...-macosx_13_0_arm64.whl)
    python desktop_check.py FOLDER      FOLDER: the demo model, compiled with --os windows or macos

Prints a line for each check, "ok", "-" if it cannot be done here, or what came instead, and ends
with code 1 if one failed. Please send what it prints. The standard library only; the tests run it
on Linux and under wine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

QUESTION, ANSWER = "What is 17 + 25?", "17 + 25 = 42"
MLCC = (sys.executable, "-m", "mlcc")
IN_CONSOLE = "--in-console"
INTERRUPTED = 130
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class NotHere(Exception):
    """A check that this machine does not allow."""


class Server:
    """`mlcc serve` of a folder on a free port."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = started("serve", folder, "--port", str(port))
        end = time.monotonic() + 120
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server does not start: {self.output()}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, **body: Any) -> str:
        """The whole body of an answer."""
        given = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, **body}
        where = f"{self.url}/v1/chat/completions"
        kind = {"content-type": "application/json"}
        request = urllib.request.Request(where, json.dumps(given).encode(), kind)
        with urllib.request.urlopen(request, timeout=60) as response:
            text: str = response.read().decode()
            return text

    def output(self) -> str:
        """What it printed, once it has ended."""
        return output(self.process)


def started(*words: str) -> subprocess.Popen[bytes]:
    """A command that runs, its output in one pipe."""
    pipe, no = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen([*MLCC, *words], stdin=no, stdout=pipe, stderr=subprocess.STDOUT)


def output(process: subprocess.Popen[bytes]) -> str:
    """What a process printed, once it has ended; it is killed after a minute."""
    try:
        text = process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        text = b"killed: " + process.communicate()[0]
    return text.decode(errors="replace")


def mlcc(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [*MLCC, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def content(body: str) -> str:
    """The text of an answer."""
    text: str = json.loads(body)["choices"][0]["message"]["content"]
    return text


def check_system() -> str:
    """What the system answers."""
    from mlcc.util import machine, memory

    found = machine.cpu_features()
    free = memory.available_bytes()
    least = "sse4.2" if machine.machine() == "x86_64" else "neon"
    assert not machine.missing_features((least,), found) and free, (found, free)
    if sys.platform == "win32":
        from mlcc.util import windows

        assert windows.runs(os.getpid())
    which = f"{machine.system()} {machine.machine()} {machine.cpu_vendor()}".strip()
    return f"{which}, {free >> 20} MiB free, {' '.join(sorted(found))}"


def check_run(folder: str) -> str:
    """One answer."""
    text = mlcc("run", folder, QUESTION)
    assert ANSWER in text.splitlines(), text
    return ANSWER


def check_server(folder: str) -> str:
    """Answers, whole, streamed, held to a schema and four at once; then `ps` and `stop`."""
    server = Server(folder)
    try:
        assert content(server.ask()) == ANSWER
        events = server.ask(stream=True).split("\n\n")
        assert events[-2] == "data: [DONE]" and len(events) > 5, events
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
        assert isinstance(json.loads(content(server.ask(response_format=form)))["n"], int)
        with ThreadPoolExecutor(4) as pool:
            assert {content(body) for body in pool.map(lambda _: server.ask(), range(4))} == {
                ANSWER
            }
        assert f"{server.url}  " in mlcc("ps")
        assert f"the server at {server.url} ends" in mlcc("stop", "--url", server.url)
        text = server.output()
        assert "killed" not in text and "bug in mlcc" not in text, text
    finally:
        server.process.kill()
    assert server.url not in mlcc("ps")
    return f"ended with code {server.process.returncode}"


def check_interrupt(folder: str) -> str:
    """Ctrl-C ends a server and an answer. On Windows all programs of a console get it: this one
    starts itself in a console of its own, which has no window."""
    if sys.platform != "win32":
        return f"ended with codes {interrupted_server(folder)}, {interrupted_answer(folder)}"
    none = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    done = subprocess.run(
        [sys.executable, __file__, IN_CONSOLE, folder],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        creationflags=none, timeout=300, check=False,
    )  # fmt: skip
    text = done.stdout.decode(errors="replace").strip()
    assert done.returncode == 0, text
    return text


def in_console(folder: str) -> None:
    """The part of `check_interrupt` in that console. Only programs that it starts end."""
    import ctypes

    # a program that was started without Ctrl-C passes that on
    ctypes.windll.kernel32.SetConsoleCtrlHandler(None, False)  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"ended with codes {interrupted_server(folder)}, {interrupted_answer(folder)}")


def press_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """As a person does it: on Windows all processes of the console get it."""
    if sys.platform == "win32":
        os.kill(0, signal.CTRL_C_EVENT)
    else:
        process.send_signal(signal.SIGINT)


def interrupted_server(folder: str) -> int:
    """The exit code of a server."""
    server = Server(folder)
    try:
        press_ctrl_c(server.process)
        text = server.output()
        assert "killed" not in text and "bug in mlcc" not in text, text
        assert "KeyboardInterrupt" not in text, text
    finally:
        server.process.kill()
    assert server.url not in mlcc("ps")
    return server.process.returncode


def interrupted_answer(folder: str) -> int:
    """The exit code of `mlcc run`, interrupted at its first letter. Answers are short: some come
    before they are interrupted, and are asked again."""
    long = json.dumps({"type": "string", "minLength": 2000})
    for _ in range(10):
        process = started("run", folder, QUESTION, "--json-schema", long)
        assert process.stdout is not None
        process.stdout.read(1)
        press_ctrl_c(process)
        text = output(process)
        assert "killed" not in text and "bug in mlcc" not in text, text
        assert "Traceback" not in text, text
        if process.returncode == INTERRUPTED:
            return process.returncode
        assert process.returncode == 0, text
    raise AssertionError("no answer was interrupted")


def check_kill(folder: str) -> str:
    """`ps` does not list a server that was killed."""
    server = Server(folder)
    server.process.kill()
    server.output()
    assert server.url not in mlcc("ps")
    return "not listed"


def main(folder: str) -> int:
    """Run all checks; the number that failed."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("system", check_system),
        ("run", lambda: check_run(folder)),
        ("server", lambda: check_server(folder)),
        ("Ctrl-C", lambda: check_interrupt(folder)),
        ("kill", lambda: check_kill(folder)),
    ]
    failed = 0
    if hasattr(sys.stdout, "reconfigure"):  # a console may not know every letter
        sys.stdout.reconfigure(errors="replace")
    for name, check in checks:
        start = time.monotonic()
        try:
            result = f"ok    {check()}"
        except NotHere as error:
            result = f"-     {error}"
        except Exception as error:
            failed += 1
            result = f"FAIL  {type(error).__name__}: {error}"
        print(f"{name:10} {time.monotonic() - start:5.1f} s  {result}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    if sys.argv[1] == IN_CONSOLE:
        in_console(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1]))
