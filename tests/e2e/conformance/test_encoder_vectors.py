"""Vectors of encoders, on every host of the engine: `mlcc serve`, programs in C and Swift, a tab in
Node and in Chromium. The numbers are those of `transformers`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.encoder_checkpoints import expected
from tests.e2e.conformance.helpers.client import Client
from tests.e2e.conformance.helpers.encoders import TOPICS, make
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import FOLDER, layout, load, read
from tests.helpers.mobile.c_bridge import bridge as c_bridge
from tests.helpers.mobile.swift_package import Package
from tests.helpers.web_package import bridge as web_bridge

ENCODERS = FOLDER / "encoders"
VECTORS = load(ENCODERS)
Compiled = Callable[[str, str], Path]


def over(*once: str, target: str | None = None) -> pytest.MarkDecorator:
    """Marks of a test over all topics, which are parts of the table of features. With two hosts,
    both run one topic, and the rest with --long."""
    parameters = []
    for topic in TOPICS:
        marks = [pytest.mark.feature(topic, target, "runs")] if target else []
        marks += [] if topic in once else [pytest.mark.long]
        parameters.append(pytest.param(topic, marks=marks))
    return pytest.mark.parametrize("topic", parameters, indirect=True, scope="module")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """(topic, target) -> its encoder, compiled once."""
    made: dict[tuple[str, str], Path] = {}
    folder = tmp_path_factory.mktemp("encoders")

    def get(topic: str, target: str) -> Path:
        if not (folder / topic).exists():
            make(topic, folder)
        if (topic, target) not in made:
            row = get_target(target, Choices(f16=False) if target == "webgpu" else Choices())
            source, out = Checkpoint.open(folder / topic), folder / target / topic
            made[topic, target] = compile_model(source, row, out, Options(quant="f32"), Progress())
        return made[topic, target]

    return get


@pytest.fixture(scope="module")
def topic(request: pytest.FixtureRequest) -> str:
    """The topic of vectors; a server runs its encoder."""
    return str(request.param)


def asked(url: str, topic: str) -> Iterator[Runner]:
    client = Client(url)
    runner = Runner(client, [vector for vector in VECTORS if vector.topic == topic])
    try:
        yield runner
    finally:
        runner.close()
        client.close()


@pytest.fixture(scope="module")
def server(topic: str, compiled: Compiled) -> Iterator[Runner]:
    command = [sys.executable, "-m", "mlcc", "serve", str(compiled(topic, "cpu")), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        yield from asked(found[0], topic)
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def program(topic: str, compiled: Compiled, c_library: Any) -> Iterator[Runner]:
    with c_bridge([str(c_library.program)], compiled(topic, "cpu")) as url:
        yield from asked(url, topic)


@pytest.fixture(scope="module")
def in_swift(topic: str, compiled: Compiled, swift_package: Package) -> Iterator[Runner]:
    model = compiled(topic, "cpu")
    with c_bridge(swift_package.program("mlcc-relay", folders=[model]), model) as url:
        yield from asked(url, topic)


@pytest.fixture(scope="module")
def in_node(topic: str, compiled: Compiled) -> Iterator[Runner]:
    with web_bridge("node", compiled(topic, "webgpu")) as url:
        yield from asked(url, topic)


@pytest.fixture(scope="module")
def in_chromium(topic: str, compiled: Compiled) -> Iterator[Runner]:
    with web_bridge("chromium", compiled(topic, "webgpu")) as url:
        yield from asked(url, topic)


def check(runner: Runner, topic: str) -> None:
    vectors = [vector for vector in VECTORS if vector.topic == topic]
    assert vectors
    for vector in vectors:
        runner.result(vector)


def test_files_are_written_in_the_one_layout() -> None:
    for path in sorted(ENCODERS.glob("*.json")):
        assert path.stem in TOPICS
        assert path.read_bytes() == layout(read(path))


def test_the_numbers_are_those_of_transformers(tmp_path: Path) -> None:
    folder = make("embeddings", tmp_path)
    oracle = transformers.BertModel.from_pretrained(folder).to(torch.float64)
    encode = Tokenizer.from_file(str(folder / "tokenizer.json")).encode
    vector = next(v for v in VECTORS if v.id == "embeddings/one-whole")
    step = vector.steps[0]
    ids = encode(step["request"]["body"]["input"]).ids
    row = expected(TOPICS["embeddings"], oracle, folder, ids)
    found, bound = step["expect"]["body"]["data"][0]["embedding"]["$near"]
    assert np.abs(np.array(found) - row / np.linalg.norm(row)).max() < bound


@over(*TOPICS, target="cpu")
def test_server(server: Runner, topic: str) -> None:
    check(server, topic)


@over("embeddings")
def test_c_library(program: Runner, topic: str) -> None:
    check(program, topic)


@pytest.mark.needs("swift")
@over()
def test_through_swift(in_swift: Runner, topic: str) -> None:
    check(in_swift, topic)


@over(*TOPICS, target="webgpu")
def test_tab_in_node(in_node: Runner, topic: str) -> None:
    check(in_node, topic)


@over("embeddings")
def test_tab_in_chromium(in_chromium: Runner, topic: str) -> None:
    check(in_chromium, topic)
