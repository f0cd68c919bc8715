"""One table of bounds for the command line, Engine in Python, mlcc.h and the tab."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mlcc import Engine
from mlcc.cli import cli
from mlcc.commands.serve.command import serve_command
from mlcc.embedded.c.options import Options
from mlcc.errors import InvalidRequestError
from mlcc.limits import BOUNDS, FIXED, IN_OTHERS, ONLY_IN_APPS, Bound, check_all, table
from mlcc.server.asgi import Settings
from mlcc.service.served_model import ServiceBounds

ROOT = Path(__file__).parents[2]
SERVED = [name for name in BOUNDS if name not in (*ONLY_IN_APPS, *IN_OTHERS, *FIXED)]
HOSTED = [name for name in BOUNDS if name in Options.__dataclass_fields__]
OUTSIDE: list[tuple[str, Any]] = [
    (name, bound.least if bound.above else bound.least - 1) for name, bound in BOUNDS.items()
] + [("memory", 1.5), ("threads", 4097)]


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_what_is_outside_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{name} is .*; it must be an?") as raised:
        check_all({name: value})
    assert raised.value.param == name


@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_inside_passes(name: str) -> None:
    bound = BOUNDS[name]
    least = bound.least + (0.5 if bound.above else 0)
    check_all({name: least, "another": -1})
    check_all({name: None})
    if bound.default is not None:
        assert bound.check(bound.default) == bound.default


@pytest.mark.parametrize("value", [True, "5", 1.5])
def test_other_kinds_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="it must be an integer from 1 on"):
        BOUNDS["max_batch"].check(value)


def test_ranges_in_words() -> None:
    assert Bound("x", "").range == "from 1 on"
    assert Bound("x", "", least=0, most=9).range == "from 0 to 9"
    assert Bound("x", "", least=0, above=True).range == "above 0"
    assert BOUNDS["memory"].range == "above 0 and at most 1"


@pytest.mark.parametrize("name", SERVED)
def test_serve_has_it(name: str) -> None:
    bound = BOUNDS[name]
    (option,) = [p for p in serve_command.params if p.name == name]
    assert option.opts == [bound.option]
    assert (option.default or None) == (bound.default or None)
    low = bound.least if bound.above else bound.least - 1
    with pytest.raises(click.BadParameter):
        option.type.convert(str(low), option, None)


def test_serve_refuses_by_its_flag() -> None:
    result = CliRunner().invoke(cli, ["serve", "nothing", "--max-body", "5"])
    assert result.exit_code == 2 and "'--max-body': 5 is not in the range x>=1024" in result.output


@pytest.mark.parametrize("name", [n for n in SERVED if n in Engine.__init__.__annotations__])
def test_python_has_it(name: str) -> None:
    low = 0 if BOUNDS[name].above else BOUNDS[name].least - 1
    with pytest.raises(InvalidRequestError, match=f"^{name} is"):
        Engine("no such model", **{name: low})


@pytest.mark.parametrize("name", HOSTED)
def test_a_c_program_has_it(name: str) -> None:
    text = (ROOT / "mobile" / "c" / "include" / "mlcc.h").read_text(encoding="utf-8")
    assert f'"{name}"' in text
    low = int(BOUNDS[name].least) - 1
    with pytest.raises(InvalidRequestError, match=f"^the option '{name}' is {low}; it must be"):
        Options.read(f'{{"model": "x", "{name}": {low}}}'.encode())


def test_defaults_are_the_tables() -> None:
    for made in (Settings(), ServiceBounds(), Options(model="x")):
        for name, bound in BOUNDS.items():
            if bound.default is not None and hasattr(made, name):
                assert getattr(made, name) == bound.default


def test_no_default_is_written_twice() -> None:
    for path in (ROOT / "runtime" / "mlcc").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "bounds.py":
            assert not re.search(r"(max_queue|max_body_bytes|max_unread_bytes): int = \d", text)


def test_the_documentation_has_the_table() -> None:
    assert table() in (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
