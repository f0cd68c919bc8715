"""Commands with only the packages of `pip install mlcc`: the standard library, click, jinja2 and
tokenizers.

In an interpreter that finds nothing else. `tests/e2e/wheel` does the same in an environment with
nothing else installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSTALLED = {"mlcc", "click", "jinja2", "markupsafe", "tokenizers"}
ROOMS = {"mlcc": "runtime", "mlcc_compiler": "compiler", "mlcc_targets": "targets"}
"""Packages of the wheel. A model runs with the first alone; commands need the others."""
BARE = """
import sys
from importlib.machinery import PathFinder

class OnlyThese(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names | {installed!r} or top.startswith("_sysconfigdata"):
            return super().find_spec(name, path, target)

sys.meta_path = [OnlyThese if finder is PathFinder else finder for finder in sys.meta_path]
sys.path[:0] = {path!r}
{program}
"""
COMMAND = "from mlcc.cli import main; main({words!r})"
ENGINE = """
from mlcc import Engine
with Engine({model!r}) as engine:
    chat = dict(messages=[dict(role="user", content="What is 2 + 3?")], temperature=0)
    print(engine.chat.completions.create(**chat).choices[0].message.content)
"""


@pytest.fixture(scope="module")
def demo(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("q4", "cpu")


def bare(
    program: str, stdin: str = "", more: bool = False, brought: str = ""
) -> subprocess.CompletedProcess[str]:
    """`more`: the wheel's other packages, too. brought: the packages of an extra."""
    path = [*(str(ROOT / room) for room in ROOMS.values()), sysconfig.get_path("purelib")]
    installed = (INSTALLED | ROOMS.keys() if more else INSTALLED) | {brought}
    source = BARE.format(installed=installed, path=path, program=program)
    command = [sys.executable, "-ISc", source]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)


def mlcc(*words: object, stdin: str = "", more: bool = False) -> str:
    done = bare(COMMAND.format(words=[*map(str, words)]), stdin, more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_and_chat(demo: Path) -> None:
    answer = mlcc("run", demo, "What is 2 + 3?", "--temperature", 0)
    assert "5" in answer
    assert mlcc("chat", demo, "--temperature", 0, stdin="What is 2 + 3?\n") == answer


def test_a_gpu_needs_wgpu_alone(vulkan: None, compiled_demo: Callable[[str, str], Path]) -> None:
    words = ["run", str(compiled_demo("q4", "vulkan")), "What is 2 + 3?", "--temperature", "0"]
    done = bare(COMMAND.format(words=words), more=True, brought="wgpu")
    assert "5" in done.stdout, done.stderr


def test_the_engine_in_a_program(demo: Path) -> None:
    done = bare(ENGINE.format(model=str(demo)))
    assert "5" in done.stdout, done.stderr


def test_structured_output_says_what_it_needs(demo: Path) -> None:
    asked = "chat = dict(guided_regex='a',"
    done = bare(ENGINE.format(model=str(demo)).replace("chat = dict(", asked))
    wanted = 'llguidance, which is not installed; type `pip install "mlcc[structured]"`'
    assert wanted in done.stderr and "UnsupportedError" in done.stderr


def test_eval_profile_and_inspect(demo: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"text": "Hello! I am Pip."}), encoding="utf-8")
    assert json.loads(mlcc("eval", demo, "--text", texts, "--json"))["perplexity"] > 1
    assert json.loads(mlcc("profile", demo, "--length", 16, "--json"))["phases"][0]["kernels"]
    assert "runs here" in mlcc("inspect", demo)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("run", "CHECKPOINT", "hi"), "compile"),
        (("run", "CHECKPOINT", "hi", "--target", "vulkan"), "vulkan"),
        (("compile", "CHECKPOINT"), "compile"),
        (("serve", "DEMO"), "serve"),
    ],
)
def test_what_is_missing_is_one_line_that_says_what_to_type(
    demo: Path, words: tuple[str, ...], extra: str
) -> None:
    places = {"CHECKPOINT": str(ROOT / "examples" / "demo" / "model"), "DEMO": str(demo)}
    done = bare(COMMAND.format(words=[places.get(word, word) for word in words]), more=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f'type `pip install "mlcc[{extra}]"`' in done.stderr


def test_targets_say_what_to_type_for_each() -> None:
    rows = json.loads(mlcc("targets", "--json", more=True))
    assert all('pip install "mlcc[compile]"' in row["compile"] for row in rows.values())
    for target, extra in {
        "vulkan": "vulkan",
        "cuda": "cuda-runtime",
        "reference": "reference",
    }.items():
        assert f'pip install "mlcc[{extra}]"' in rows[target]["run"]
    assert rows["cpu"]["run"] == ""


def test_help_says_which_commands_want_more() -> None:
    listed = " ".join(mlcc("--help", more=True).split())
    assert 'with a chat page at / (pip install "mlcc[serve]")' in listed
