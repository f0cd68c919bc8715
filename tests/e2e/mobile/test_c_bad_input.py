"""Invalid input of a host: one typed error each, and the process continues."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.manifest import Manifest
from mlcc.embedded.c import codes
from mlcc.embedded.c.codes import Code, Kind
from tests.helpers.mobile.c_host import ABI, NULL, Host, Name
from tests.helpers.mobile.c_library import SITE, SOURCE, Library

TOY = "tests.helpers.toy.toy_model:open_toy"
HEADER = (SOURCE / "include" / "mlcc.h").read_text()
BAD_ABI, NO_PYTHON, OTHER_PYTHON, BAD_RUNTIME = 11, 13, 14, 15
"""Codes that only C++ returns."""


@pytest.fixture
def bare(c_library: Library) -> Iterator[Host]:
    """A host process in which no interpreter is started."""
    with Host(c_library.program) as running:
        yield running


def works(host: Host) -> None:
    engine = host.create(open=TOY)
    host.ready()
    assert host.ask(engine, "/v1/models").answer()[0] == 200
    host.order(Name.CLOSE, a=engine)


def failure(host: Host, **options: Any) -> tuple[int, str, str]:
    """(code, the API's code, message) of an engine that cannot be loaded. It is closed."""
    engine = host.create(**options)
    early = host.ask(engine, "/v1/models")
    event = host.state()
    assert event.kind == Kind.FAILED
    for call in (early, host.ask(engine, "/v1/models")):
        end = call.end()
        assert (end.status, end.data) == (event.status, event.data)
    assert host.stats(engine)["state"] == "failed"
    host.order(Name.CLOSE, a=engine)
    host.released.get(timeout=60)
    error = event.json["error"]
    return event.status, error["code"], error["message"]


@pytest.mark.parametrize("enum", [codes.Code, codes.Kind, codes.Trim])
def test_python_writes_the_numbers_of_the_header(enum: Any) -> None:
    prefix = {codes.Code: "MLCC_", codes.Kind: "MLCC_EVENT_", codes.Trim: "MLCC_TRIM_"}[enum]
    header_values = dict(re.findall(rf"^  {prefix}(\w+) = (\d+)", HEADER, re.M))
    assert {member.name: str(member.value) for member in enum}.items() <= header_values.items()


def _rewritten(zip: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(zip) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(zip, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def _truncated(zip: Path) -> None:
    zip.write_bytes(zip.read_bytes()[:-2000])


def _damaged(zip: Path) -> None:
    data = bytearray(zip.read_bytes())
    at = data.index(b"mlcc/embedded/c/process.pyc") + 100
    data[at : at + 200] = bytes(200)
    zip.write_bytes(data)


def _incomplete(zip: Path) -> None:
    _rewritten(zip, lambda files: files.pop("mlcc/service/engine_client.pyc") and None)


def _other_python(zip: Path) -> None:
    _rewritten(zip, lambda files: files.update({"mlcc.runtime": f"abi{ABI} cpython-27".encode()}))


def _other_abi(zip: Path) -> None:
    _rewritten(zip, lambda files: files.update({"mlcc.runtime": b"abi999 cpython-311"}))


def _foreign(zip: Path) -> None:
    _rewritten(zip, lambda files: files.clear())


ZIPS = [(Path.unlink, BAD_RUNTIME, "bad_runtime"), (_truncated, BAD_RUNTIME, "bad_runtime")]
ZIPS += [(change, BAD_RUNTIME, "bad_runtime") for change in (_damaged, _incomplete, _other_python)]
ZIPS += [(_foreign, BAD_RUNTIME, "bad_runtime"), (_other_abi, BAD_ABI, "bad_abi")]


def test_a_zip_that_is_none_of_this_library(bare: Host, c_library: Library, tmp_path: Path) -> None:
    path = ":".join(SITE)
    for change, code, name in ZIPS:
        zip = tmp_path / "mlcc.zip"
        shutil.copyfile(c_library.zip, zip)
        change(zip)
        reply = bare.start(zip, path=path)
        assert (reply.c, reply.error["code"]) == (code, name), (change, reply)
        assert str(zip) in reply.error["message"] and "again" in reply.error["message"]
    shutil.copyfile(c_library.zip, zip)
    assert bare.start(zip, path=path).c == Code.OK
    works(bare)


def test_no_standard_library(bare: Host, tmp_path: Path) -> None:
    reply = bare.start(home=tmp_path)
    assert reply.c == NO_PYTHON and str(tmp_path) in reply.error["message"]
    assert bare.start(home=sys.base_prefix, path=":".join(SITE)).c == Code.OK
    works(bare)


def test_no_standard_library_on_a_path_of_ones_own(bare: Host, tmp_path: Path) -> None:
    reply = bare.start(home="", path=str(tmp_path))
    assert reply.c == NO_PYTHON and "home" in reply.error["message"]
    assert bare.start(home="", path=str(tmp_path)).c in (NO_PYTHON, OTHER_PYTHON)


def test_two_interpreters(host: Host, bare: Host, c_library: Library, tmp_path: Path) -> None:
    assert host.start(path=":".join(SITE)).c == Code.OK  # the same again
    for reply in (
        host.start(path=":".join([*SITE, "/more"])),
        host.start(home=tmp_path, path=":".join(SITE)),
        host.start(zip=shutil.copyfile(c_library.zip, tmp_path / "x.zip"), path=":".join(SITE)),
    ):
        assert reply.c in (OTHER_PYTHON, NO_PYTHON) and reply.error, reply
    works(host)
    bare.order(Name.OWN_PYTHON)
    reply = bare.start()
    assert (reply.c, reply.error["code"]) == (OTHER_PYTHON, "other_python")
    assert bare.order(Name.CREATE, '{"model": "x"}').c == OTHER_PYTHON


def test_another_abi(host: Host) -> None:
    for reply in (host.start(abi=2), host.order(Name.CREATE, "{}", d=2)):
        assert (reply.c, reply.a, reply.error["code"]) == (BAD_ABI, 0, "bad_abi")
        assert f"version 2 of mlcc.h, this library is version {ABI}" in reply.error["message"]
    works(host)


def test_arguments_that_are_missing(host: Host) -> None:
    assert host.order(Name.CREATE, NULL).c == Code.BAD_ARGUMENT
    engine = host.create(open=TOY)
    host.ready()
    for texts in ((NULL, "/", "{}", ""), ("GET", NULL, "{}", "")):
        reply = host.order(Name.REQUEST, *texts, a=engine)
        assert (reply.c, reply.b, reply.error["code"]) == (Code.BAD_ARGUMENT, 0, "bad_argument")
    for texts in ((b"GET", b"/", b"[1]", b""), (b"GET", b"/\xff", b"{}", b"")):
        reply = host.order(Name.REQUEST, *texts, a=engine)
        end = host.call(reply.b).end()
        assert (end.status, end.json["error"]["code"]) == (Code.BAD_ARGUMENT, "bad_argument")
    for number in (0, 1 << 63):
        assert host.order(Name.REQUEST, "GET", "/", "{}", "", a=number).c == Code.CLOSED


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "'model' is missing"),
        ({"modle": "x"}, "'modle'"),
        ({"model": 3}, "'model' is 3"),
        ({"model": "x", "threads": "two"}, "'threads' is 'two'"),
        ({"model": "x", "context": True}, "'context' is True"),
        ({"model": "x", "max_queue": None}, "'max_queue' is None"),
        ({"model": "x", "device": -1}, "it must be an integer from 0 on"),
    ],
)
def test_options_that_are_wrong(host: Host, options: dict[str, Any], word: str) -> None:
    code, name, message = failure(host, **options)
    assert (code, name) == (Code.BAD_ARGUMENT, "bad_options") and word in message


def check_misuse(library: Library, *flags: str) -> None:
    """Run misuse.cc over the library; flags: of its compiler."""
    source = Path(__file__).with_name("misuse.cc")
    program = library.compile(source, "misuse", "g++", "-std=c++17", "-Wall", "-Wextra", *flags)
    run = subprocess.run(
        [program, os.pathsep.join(SITE), TOY], capture_output=True, text=True, timeout=600
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "ok\n", "")


def test_null_pointers_and_closed_handles_from_several_threads(c_library: Library) -> None:
    check_misuse(c_library)


def test_options_that_are_no_json(host: Host) -> None:
    for text in ("", "{", "[1]", b"\xff"):
        assert host.order(Name.CREATE, text, c=1).c == Code.OK
        event = host.state()
        assert (event.kind, event.status) == (Kind.FAILED, Code.BAD_ARGUMENT)


def test_callbacks_that_are_missing(host: Host) -> None:
    reply = host.order(Name.CREATE, '{"model": "x"}', c=4)  # a third of a tokenizer
    assert (reply.c, reply.a, reply.error["code"]) == (Code.NO_CALLBACK, 0, "no_callback")


def test_a_bug_in_what_opens_a_model(host: Host) -> None:
    code, name, _ = failure(host, open="tests.helpers.toy.toy_model:no_such_thing")
    assert (code, name) == (Code.FAILED, "internal_error")
    assert any("AttributeError" in line for line in host.log)
    works(host)


@pytest.fixture
def demo(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("f32", "cpu")


def _manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def changed(model: Path) -> None:
        path = model / "mlcc.json"
        manifest = json.loads(path.read_bytes())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return changed


def _other_machine(model: Path) -> None:
    """A model compiled for another machine: its manifest is valid."""
    path = model / "mlcc.json"
    manifest = Manifest.from_bytes(path.read_bytes())
    target = replace(manifest.target, arch="riscv64", triple="riscv64-linux")
    path.write_bytes(replace(manifest, target=target).to_bytes())


MODELS: dict[str, Callable[[Path], object]] = {
    "missing": shutil.rmtree,
    "empty": lambda model: [path.unlink() for path in model.iterdir()],
    "no manifest": lambda model: (model / "mlcc.json").unlink(),
    "half a manifest": lambda model: (model / "mlcc.json").write_text('{"schema":'),
    "another schema": _manifest(lambda manifest: manifest.update(schema=99)),
    "another ABI": _manifest(lambda manifest: manifest.update(abi="0" * 64)),
    "another machine's": _other_machine,
    "damaged weights": lambda model: next(model.glob("*.safetensors")).write_bytes(b"x"),
}


@pytest.mark.parametrize("damage", MODELS)
def test_models_that_are_damaged(host: Host, demo: Path, tmp_path: Path, damage: str) -> None:
    model = tmp_path / "model"
    shutil.copytree(demo, model)
    MODELS[damage](model)
    code, _, message = failure(host, model=str(model))
    assert code == Code.BAD_MODEL and str(model) in message


def test_a_model_that_does_not_fit(host: Host, demo: Path) -> None:
    for options in ({"memory_bytes": 1 << 20}, {"context": 1 << 20}):
        code, _, message = failure(host, model=str(demo), **options)
        assert code == Code.NO_MEMORY, message
    code, _, _ = failure(host, model=str(demo), device=3)
    assert code == Code.DEVICE_FAILED
    works(host)
