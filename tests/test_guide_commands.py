"""Every command that the documentation shows is one that the command line accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

import dev
from mlcc.cli import cli
from tools.guide_commands import ROOT, commands

PAGES = (
    *("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "mobile/**/*.md"),
    *("web/*.md", "deploy/**/*.md", "runtime/**/*.md", "targets/**/*.md"),
)
INLINE = re.compile(r"`(mlcc [a-z][^`]*)`")
LEFT_OUT = "..."
"""In a command: more options than it shows."""
NAMED_ONLY = "requires an argument"
"""A sentence may name an option without its value, as in `mlcc run --image`."""


def shown() -> Iterator[tuple[Path, str]]:
    """The commands of shell blocks, then those within sentences."""
    yield from commands(PAGES)
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        if "node_modules" not in path.parts:
            text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
            for command in INLINE.findall(text):
                yield path.relative_to(ROOT), " ".join(command.replace("\\|", "|").split())


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a shell line, without variables and redirections."""
    line = re.sub(r"\[([^]]*)\]", r"\1", line)  # an option that may be left out
    lexer = shlex.shlex(line.replace("mlcc[", "mlcc-"), posix=True, punctuation_chars="&|;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= set("&|;()"):
            if words:
                yield words
            words = []
        elif words or not re.fullmatch(r"[A-Z_]+=.*", word):
            words.append(word)


def fault(words: list[str]) -> str:
    """Why a command of mlcc, dev.py or a module of this repository cannot be as written."""
    program, *rest = words
    if program == "mlcc" and rest:
        return fault_of_mlcc(rest)
    if program in ("python", "python3") and rest[0] == "dev.py":
        if rest[1] == "run" and rest[2:]:
            return fault_of_mlcc(rest[2:])
        return "" if rest[1] in dev.COMMANDS else f"dev.py has no command {rest[1]}"
    if program in ("python", "python3") and rest[0] == "-m":
        ours = rest[1].partition(".")[0] in ("tools", "benchmarks", "tests", "mlcc_targets")
        return "" if not ours or find_spec(rest[1]) else f"there is no module {rest[1]}"
    if program in ("python", "python3") and rest[0].endswith(".py"):
        return "" if (ROOT / rest[0]).exists() else f"there is no file {rest[0]}"
    return ""


def fault_of_mlcc(words: list[str]) -> str:
    """Why the command line refuses these words; values are checked where no file is needed."""
    context, command = click.Context(cli), cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return "" if command.invoke_without_command else f"no command {words[0]!r}"
        command, words = found, words[1:]
    words = [word for word in words if word != LEFT_OUT]
    context = click.Context(command)
    try:
        given, _, order = command.make_parser(context).parse_args(args=list(words))
        for parameter in order:
            value = given.get(parameter.name or "")
            if isinstance(parameter.type, click.Choice | click.IntRange | click.FloatRange):
                for each in value if isinstance(value, list | tuple) else [value]:
                    if isinstance(each, str) and not each.isupper():
                        parameter.type.convert(each, parameter, context)
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize(
    ("page", "line"), dict.fromkeys((str(path), line) for path, line in shown())
)
def test_a_command_of_the_documentation(page: str, line: str) -> None:
    faults = [found for words in simple_commands(line) if (found := fault(words))]
    assert not [found for found in faults if NAMED_ONLY not in found], f"{page}: {line}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("mlcc serve MODEL --prot 8000", "No such option '--prot'"),
        ("KEY=1 mlcc run MODEL hello && mlcc srve MODEL", "no command 'srve'"),
        ("mlcc compile MODEL --kv f17", "'f17' is not one of"),
        ("mlcc serve MODEL --port 80000", "80000 is not in the range"),
        ("mlcc cache clear", "no command 'clear'"),
        ("python3 dev.py tests", "dev.py has no command tests"),
        ("python3 dev.py run serve MODEL --pages 1", "No such option '--pages'"),
        ("python -m tools.guides --list", "there is no module tools.guides"),
    ],
)
def test_a_wrong_command_is_found(line: str, reason: str) -> None:
    assert any(reason in fault(words) for words in simple_commands(line))
