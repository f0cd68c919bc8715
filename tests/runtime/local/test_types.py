"""`mlcc.types` is what the schema prints, and a type checker holds programs to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from mlcc.api.openai import shapes
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.schema import Flag, Integer, Many, Text, Use
from mlcc.util import user_folders
from tools.api_types import python

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio
from mlcc import AsyncEngine, Engine
from mlcc.types import ChatCompletion, Message

engine = Engine("model")
answer = engine.chat.completions.create(messages=[{"role": "user", "content": "Hi"}], temperature=0)
reveal_type(answer)
reveal_type(answer.choices[0].message.content)
reveal_type(answer.usage.prompt_tokens_details.cached_tokens)
for chunk in engine.completions.create(prompt="Once", stream=True, max_tokens=4):
    reveal_type(chunk.choices[0].text)
reveal_type(engine.embeddings.create(input=["a", "b"]).data[0].embedding)
reveal_type(engine.rerank.create(query="q", documents=["d"]).results[0].relevance_score)

async def ask(messages: list[Message]) -> ChatCompletion:
    other = AsyncEngine("model")
    async for chunk in await other.chat.completions.create(messages=messages, stream=True):
        reveal_type(chunk.choices[0].delta.content)
    return await other.chat.completions.create(messages=messages)
"""
REVEALED = (
    "mlcc.types.ChatCompletion",
    "str | None",
    "int",
    "str",
    "list[float] | str",
    "float",
    "str | None",
)
WRONG = {
    "engine.chat.completions.create(messages=[], temprature=1)": "temprature",
    "engine.chat.completions.create()": "argument",
    'engine.chat.completions.create(messages=[{"role": "user", "contents": "x"}])': '"contents"',
    'engine.completions.create(prompt="x").choices[0].txt': '"txt"',
    'engine.completions.create(prompt="x", max_tokens="4")': '"str", "str"',
    "engine.embeddings.create(input=1.5)": '"input"',
}


def checked(folder: Path, program: str) -> str:
    """What mypy says of a program, in its strictest mode."""
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    cache = user_folders.cache() / "tests" / "mypy"  # by the hashes of files
    found = subprocess.run(
        [*command, f"--config-file={folder / 'none.ini'}", f"--cache-dir={cache}"],
        capture_output=True,
        text=True,
        env={"MYPYPATH": str(ROOT / "runtime"), "PATH": "/usr/bin:/bin"},
        cwd=folder,
    )
    assert "Traceback" not in found.stderr and found.returncode in (0, 1), found.stderr
    return found.stdout


def test_the_module_is_what_the_schema_prints() -> None:
    same = python.OUT.read_text(encoding="utf-8") == python.render()
    assert same, "type: python -m tools.api_types"


def test_every_field_that_is_built_is_there() -> None:
    import mlcc.types as types

    for table in (CHAT, COMPLETION):
        built = {field.name for field in table.fields if field.use is not Use.NOT_BUILT}
        assert set(getattr(types, table.name).__annotations__) == built - {"stream"}
    classes = [getattr(shapes, name) for name in dir(shapes) if name[0].isupper()]
    answers = [kind for kind in classes if hasattr(kind, "__required_keys__")]
    for kind in answers:
        if kind.__name__ != "TypedDict":
            printed = getattr(types, kind.__name__).__annotations__
            assert set(printed) == set(get_type_hints(kind)), kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Flag(), "bool"),
        (Text(("a", "b")), 'Literal["a", "b"]'),
        (Many(Many(Integer())), "Sequence[Sequence[int]]"),
    ],
)
def test_types(kind: object, expected: str) -> None:
    assert python.python(kind) == expected


def test_a_checker_knows_answers_and_finds_mistakes(tmp_path: Path) -> None:
    (tmp_path / "none.ini").write_text("[mypy]\n")
    wrong = "".join(f"{line}\n" for line in WRONG)
    lines = checked(tmp_path, PROGRAM + wrong).splitlines()
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in lines]
    found = [text.replace("builtins.", "") for text in revealed if text]
    assert found == list(REVEALED)
    first = PROGRAM.count("\n") + 1
    for number, (line, reason) in enumerate(WRONG.items(), first):
        errors = [text for text in lines if f"program.py:{number}: error:" in text]
        assert errors and reason in " ".join(errors), (line, errors)
    own = (line for line in lines if line.startswith("program.py:") and ": error:" in line)
    at = {int(line.split(":")[1]) for line in own}
    assert at == {*range(first, first + len(WRONG))}
