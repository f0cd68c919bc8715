"""Ctrl-C and SIGTERM at any moment of a write leave the old artifact or the new one, and no other
file."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mlcc.artifact.folder import Artifact
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.interrupts import deferred, unwinding
from tests.runtime.artifact.small_artifact import fill, make

PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
from tests.runtime.artifact.small_artifact import make
print("ready", flush=True)
while True:
    make(sys.argv[1])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_writer_struck_at_random(tmp_path: Path, number: signal.Signals) -> None:
    # One process writes again and again; each is struck once, at a moment drawn anew.
    folder = make(tmp_path / "tiny")
    for seed in range(4):
        command = [sys.executable, "-c", PROGRAM, str(folder), *sys.path]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup and & ignore some
        ) as child:
            assert child.stdout and child.stdout.readline() == "ready\n"
            time.sleep(random.Random(seed * 64 + number).uniform(0.005, 0.05))
            child.send_signal(number)
        assert child.returncode in (-number, 128 + number)
        assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
        Artifact.open(folder)


def test_signals_wait_while_deferred() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            steps.append("whole")
        steps.append("never")
    assert steps == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_termination_unwinds() -> None:
    with pytest.raises(SystemExit) as caught, unwinding():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_that_another_layer_disguises(
    tmp_path: Path, number: int, kind: type[BaseException]
) -> None:
    # TVM raises RuntimeError for whatever a Python callback raised.
    with pytest.raises(kind), ArtifactWriter(tmp_path / "tiny"):
        try:
            signal.raise_signal(number)
        except BaseException as error:
            raise RuntimeError from error
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_another_layer_swallows(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ArtifactWriter(tmp_path / "tiny") as writer:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        writer.finish(fill(writer))
    assert list(tmp_path.iterdir()) == []


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwinding(), deferred():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_are_left_alone(tmp_path: Path) -> None:
    thread = threading.Thread(target=make, args=(tmp_path / "tiny",))
    thread.start()
    thread.join()
    assert Artifact.open(tmp_path / "tiny").manifest.files
