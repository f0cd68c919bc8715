"""The tab under real Pyodide, in Node: equal answers with CPython, and few loaded modules."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import jinja2

from tests.helpers.needs import absent
from tests.helpers.toy.toy_model import TEMPLATE
from tests.helpers.toy.toy_steps import answers_of
from tests.helpers.toy.toy_tab import ADAPTER, ToyGpu, answer, open_tab, toy_manifest, toy_plan
from tests.helpers.web_package import node

ROOT = Path(__file__).parents[3]
PYODIDE = ROOT / "web" / "node_modules" / "pyodide"
SCRIPT = Path(__file__).with_name("in_pyodide.mjs")
ABSENT = {"numpy", "tokenizers", "tvm", "starlette", "uuid", "datetime", "difflib"}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def run(executor: str, requests: list[dict[str, Any]], rounds: int = 1) -> dict[str, Any]:
    """Answer the requests all at once, in Pyodide, and again in each round."""
    program = node()
    if not PYODIDE.is_dir():
        absent("no Pyodide: type `npm ci` in web/")
    job = {
        "adapter": ADAPTER,
        "executor": executor,
        "manifest": base64.b64encode(toy_manifest().to_bytes()).decode(),
        "plan": toy_plan(),
        "requests": requests,
        "rounds": rounds,
        "texts": {"chat_template.jinja": TEMPLATE},
    }
    site = Path(jinja2.__file__).parents[1]
    folders = (PYODIDE, ROOT / "runtime", site, ROOT)
    done = subprocess.run(
        [program, SCRIPT, *folders],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def requests() -> list[dict[str, Any]]:
    def chat(**fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "héllo " * 12}]
        return {"path": CHAT, "body": {"messages": messages, "max_tokens": 24, **fields}}

    return [
        {"path": "/v1/models"},
        chat(temperature=0),
        chat(seed=3, stream=True, stream_options={"include_usage": True}),
        {"path": COMPLETIONS, "body": {"prompt": ["a", "b"], "seed": 1, "stop": ["e"]}},
        {"path": COMPLETIONS, "body": {"prompt": "x" * 600}},
        # with seeds, as an answer of another time would be kept in the prefix cache
        {"path": COMPLETIONS, "body": {"prompt": "x", "seed": 2, "temprature": 1}},
        {"path": CHAT, "body": {"messages": [{"role": "user", "content": 5}]}},
        {"path": "/v3"},
    ]


def without_names(value: Any) -> Any:
    """JSON without ids and times."""
    if isinstance(value, dict):
        return {k: without_names(v) for k, v in value.items() if k not in ("id", "created")}
    return [without_names(item) for item in value] if isinstance(value, list) else value


def parsed(text: str) -> Any:
    if not text.startswith("data: "):
        return without_names(json.loads(text))
    lines = [line.removeprefix("data: ") for line in text.split("\n\n")]
    return [line if line in ("", "[DONE]") else without_names(json.loads(line)) for line in lines]


def test_pyodide_answers_as_cpython_does() -> None:
    report = run("toy", requests())

    async def here() -> list[Any]:
        async with open_tab() as tab:
            asked = [answer(tab, r["path"], r.get("body")) for r in requests()]
            return await asyncio.gather(*asked)

    expected = [(r.status, r.headers, parsed(r.text)) for r in asyncio.run(here())]
    found = [(a["status"], a["headers"], parsed(a["text"])) for a in report["answers"]]
    assert found == expected
    assert [status for status, _, _ in found] == [200, 200, 200, 200, 400, 200, 400, 404]
    assert report["plan"] == {**json.loads(toy_plan()), "capacity": report["plan"]["capacity"]}
    assert report["adjusted"] == json.loads(asyncio.run(answers_of(ToyGpu())))
    engine = report["stats"]["engine"]
    assert engine["pages_free"] == engine["pages"] and engine["running"] == 0


def test_pythons_time_is_counted_and_start_up_imports_little() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "ignore_eos": True}
    report = run("none", [{"path": CHAT, "body": {**body, "max_tokens": 300}}])
    assert report["answers"][0]["status"] == 200
    driver = report["stats"]["driver"]
    # How much it is belongs to benchmarks/web: here the cores are shared with other tests.
    assert driver["steps"] >= 299 and driver["python_ms"] > 0
    assert not ABSENT & set(report["modules"])


def test_chat_after_chat_leaves_nothing_behind() -> None:
    report = run("toy", requests(), rounds=12)
    assert len(set(report["objects"][4:])) == 1, report["objects"]
