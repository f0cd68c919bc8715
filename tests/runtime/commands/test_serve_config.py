"""Options of `mlcc serve` by flag, environment variable, config file and default: equal names, and
a precedence. All four ways accept each option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mlcc.commands.serve import command, config
from mlcc.commands.serve.command import serve_command
from mlcc.commands.serve.options import GROUPS
from mlcc.engine_args import EngineArgs
from mlcc.errors import MlccError
from mlcc.server.server_args import ServerArgs

PARAMETERS = {
    config.key_of(parameter): parameter
    for parameter in serve_command.params
    if parameter.name not in ("config", "help")
}
Given = tuple[EngineArgs, ServerArgs]
Serve = Callable[..., Given]

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "speculate": ("lookup:4", "lookup:5", "lookup:6"),
    "draft": (Path("/a"), Path("/b"), Path("/c")),
    "root-path": ("/a", "/b", "/c"),
    "device": (1, "2", "3"),
}
"""Other values than `values_of` would make."""
FIELDS = {"model": "models"}
"""Names in the records, where they are not the parameter's."""


def values_of(key: str, tmp_path: Path) -> tuple[Any, Any, Any]:
    """(in the file, in the environment, as a flag), none of them the default."""
    parameter = PARAMETERS[key]
    kind = parameter.type
    if key in VALUES:
        return VALUES[key]
    if isinstance(kind, click.Choice):
        choices = [each for each in kind.choices if each != parameter.default]
        return choices[0], choices[-1], choices[0]
    if isinstance(kind, click.types.BoolParamType):
        return (parameter.default is not True,) * 3
    if key == "memory":
        return 0.25, 0.5, 0.75
    if isinstance(kind, click.types.FloatParamType):
        return 1.5, 2.5, 3.5
    if isinstance(kind, click.types.IntParamType):
        return 2001, 2002, 2003
    names = [tmp_path / name for name in ("a", "b", "c")]
    for name in names:
        name.mkdir(exist_ok=True)
    if isinstance(kind, click.Path):
        return (names[0], names[1], names[2]) if kind.file_okay is False else tuple_of_files(names)
    return "a", "b", "c"


def tuple_of_files(folders: list[Path]) -> tuple[Path, Path, Path]:
    first, second, third = (folder / "file" for folder in folders)
    return first, second, third


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """`mlcc serve` up to the two records, in an environment without MLCC_ variables."""
    found: list[Given] = []
    monkeypatch.setattr(command, "run_server", lambda args, server: found.append((args, server)))
    for parameter in PARAMETERS.values():
        monkeypatch.delenv(config.variable_of(parameter), raising=False)

    def run(*words: str, **variables: str) -> Given:
        done = CliRunner(env=variables).invoke(serve_command, words)
        if isinstance(done.exception, MlccError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return found.pop()

    return run


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'


def written(tmp_path: Path, key: str, value: Any) -> str:
    file = tmp_path / "serve.toml"
    several = getattr(PARAMETERS[key], "multiple", False) or PARAMETERS[key].nargs == -1
    file.write_text(f"{key} = {toml([value] if several else value)}\n")
    return str(file)


def flag(key: str, value: Any) -> list[str]:
    parameter = PARAMETERS[key]
    if isinstance(parameter, click.Argument):
        return [str(value)]
    if isinstance(parameter.type, click.types.BoolParamType):
        return [f"--{key}" if value else f"--no-{key}"]
    return [f"--{key}", str(value)]


def read(given: Given, key: str) -> Any:
    """The value of an option in the record that has it; the first of several."""
    name = FIELDS.get(key, str(PARAMETERS[key].name))
    value = getattr(given[1] if hasattr(given[1], name) else given[0], name)
    return value[0] if isinstance(value, tuple) and value else value


def expected(key: str, value: Any) -> Any:
    return int(value) if key == "device" else value


@pytest.mark.parametrize("key", PARAMETERS)
def test_each_option_by_all_four_ways(serve: Serve, tmp_path: Path, key: str) -> None:
    in_file, in_environment, as_flag = values_of(key, tmp_path)
    variable = {config.variable_of(PARAMETERS[key]): str(in_environment)}
    also = ["--draft", "/d"] if key == "speculate" and "draft" in str(in_file) else []
    default = read(serve(*also), key)
    file = ["--config", written(tmp_path, key, in_file), *also]
    assert read(serve(*file), key) == expected(key, in_file) != default
    assert read(serve(*file, **variable), key) == expected(key, in_environment) != default
    assert read(serve(*file, *flag(key, as_flag), **variable), key) == expected(key, as_flag)
    assert read(serve(*flag(key, as_flag)), key) == expected(key, as_flag)
    assert read(serve(**variable), key) == expected(key, in_environment)


@pytest.mark.parametrize(
    "key", [k for k, p in PARAMETERS.items() if isinstance(p.type, click.types.BoolParamType)]
)
def test_a_variable_turns_off_what_a_file_turns_on(serve: Serve, tmp_path: Path, key: str) -> None:
    variable = config.variable_of(PARAMETERS[key])
    for in_file, in_environment in ((True, "0"), (False, "1")):
        file = written(tmp_path, key, in_file)
        assert read(serve("--config", file), key) is in_file
        assert read(serve("--config", file, **{variable: in_environment}), key) is not in_file


def test_the_records_hold_the_options_and_nothing_else() -> None:
    held = {field.name for kind in (EngineArgs, ServerArgs) for field in fields(kind)}
    names = {str(parameter.name) for parameter in PARAMETERS.values()}
    assert names | {"model", "devices", "memory_bytes"} == held


def test_each_option_is_in_one_group_of_the_help() -> None:
    grouped = [flag for flags in GROUPS.values() for flag in flags]
    assert len(grouped) == len(set(grouped))
    options = [each for each in serve_command.params if isinstance(each, click.Option)]
    assert {max(each.opts, key=len) for each in options} == set(grouped)
    text = CliRunner().invoke(serve_command, ["--help"]).output
    assert [line for line in text.splitlines() if line in {f"{title}:" for title in GROUPS}] == [
        f"{title}:" for title in GROUPS
    ]


@pytest.mark.parametrize("key", ["max-batch", "max_batch"])
def test_dashes_or_underscores(serve: Serve, tmp_path: Path, key: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f"{key} = 7\n")
    assert serve("--config", str(file))[0].max_batch == 7
    assert serve(MLCC_CONFIG=str(file))[0].max_batch == 7


def test_lists(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('model = ["a", "b"]\nalias = ["x=a", "y=b"]\ndevice = [0, 1]\n')
    args, server = serve("--config", str(file))
    assert server.models == ("a", "b") and server.aliases == ("x=a", "y=b")
    assert args.devices == (0, 1) and args.device == 0
    args, server = serve("--config", str(file), MLCC_ALIAS="z=a,x=b", MLCC_MODEL="b,a")
    assert server.models == ("b", "a") and server.aliases == ("z=a", "x=b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-bach = 3", "no option 'max-bach'; did you mean max-batch?"),
        ("zzz = 3", "no option 'zzz'. `mlcc serve --help` lists the options"),
        ("[server]\nport = 1", "no option 'server'"),
        ("config = 'x'", "no option 'config'"),
        ("max-batch = '8'", "max-batch must be an integer"),
        ("max-batch = true", "max-batch must be an integer"),
        ("max-batch = 2.5", "max-batch must be an integer"),
        ("max-batch = 0", "max-batch: 0 is not in the range x>=1"),
        ("timeout = '3'", "timeout must be a number"),
        ("log-json = 1", "log-json must be true or false"),
        ("host = 1", "host must be a string"),
        ("log-level = 'loud'", "log-level: 'loud' is not one of"),
        ("alias = 'a'", 'alias must be a list, as in alias = ["..."]'),
        ("alias = [1]", "alias must be a list, each of it a string"),
        ("port = 1\nmax-batch = 1\nmax_batch = 2", "max-batch is given twice"),
        ("port = ", "is not TOML"),
        ("port = 1\nport = 2", "is not TOML"),
    ],
)
def test_wrong_files(serve: Serve, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(MlccError) as raised:
        serve("--config", str(file))
    assert f"--config {file}: " in raised.value.message and words in raised.value.message


def test_files_that_cannot_be_read(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(MlccError, match="cannot be read"):
        serve("--config", str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b'host = "\xff"')
    with pytest.raises(MlccError, match="is not UTF-8"):
        serve("--config", str(tmp_path / "latin.toml"))


def test_keys_are_not_shown(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    for text in ('api-key = "sesame"', 'api-key = ["sesame", 1]', 'api-key = ["sesame'):
        file.write_text(text)
        with pytest.raises(MlccError) as raised:
            serve("--config", str(file))
        assert "sesame" not in raised.value.message
    file.write_text('api-key = ["sesame", "two words, one key"]')
    _, server = serve("--config", str(file))
    assert server.api_keys == ("sesame", "two words, one key") and "sesame" not in repr(server)
    _, server = serve("--config", str(file), MLCC_API_KEY="one key, with a comma")
    assert server.api_keys == ("one key, with a comma",)


def test_a_file_of_keys_that_others_can_read(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(config, "note", notes.append)
    file = tmp_path / "serve.toml"
    file.write_text('api-key = ["sesame"]')
    file.chmod(0o600)
    serve("--config", str(file))
    assert not notes
    file.chmod(0o644)
    serve("--config", str(file))
    assert notes == [f"other users can read the keys in {file}; type `chmod 600 {file}`"]


def test_the_example_of_the_documentation(serve: Serve, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    file = tmp_path / "serve.toml"
    file.write_text(text.partition("```toml\n")[2].partition("```")[0])
    args, server = serve("--config", str(file))
    assert server.models and server.port and args.max_batch
