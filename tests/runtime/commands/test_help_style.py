"""The help of each option is a sentence: a capital letter and a full stop."""

from __future__ import annotations

import re

import click
import pytest

from mlcc.cli import cli

CONTEXT = click.Context(cli)


@pytest.mark.parametrize("name", cli.list_commands(CONTEXT))  # type: ignore[attr-defined]
def test_the_help_of_options(name: str) -> None:
    command = cli.get_command(CONTEXT, name)  # type: ignore[attr-defined]
    commands = [command, *getattr(command, "commands", {}).values()]
    for parameter in (each for one in commands for each in one.params):
        if isinstance(parameter, click.Option):
            text = parameter.help or ""
            assert text[:1].isupper() or text[:1].isdigit(), (parameter.opts, text)
            assert text.endswith("."), (parameter.opts, text)
            assert "  [" not in text, "a default is `show_default`"
            shown = parameter.make_metavar(CONTEXT)
            assert "RANGE" not in shown, (parameter.opts, shown, "a name of what is given")


@pytest.mark.parametrize("name", cli.list_commands(CONTEXT))  # type: ignore[attr-defined]
def test_many_options_are_listed_in_groups(name: str) -> None:
    command = cli.get_command(CONTEXT, name)  # type: ignore[attr-defined]
    text = command.get_help(click.Context(command))
    sections = re.split(r"^(?=[A-Z][A-Za-z ]*:$)", text, flags=re.MULTILINE)[1:]
    for section in sections:
        title, *rows = section.splitlines()
        options = [row for row in rows if row.startswith("  -")]
        assert len(options) <= 18, f"{name}: {title} has {len(options)} options; group them"
        assert title != "Other:" or all("--help" in row for row in options), name


def test_each_command_has_a_section() -> None:
    text = cli.get_help(CONTEXT)
    assert "\nOther:" not in text
    rows = re.findall(r"^  (\w+) +[A-Z]", text, flags=re.MULTILINE)
    assert sorted(rows) == cli.list_commands(CONTEXT)  # type: ignore[attr-defined]
