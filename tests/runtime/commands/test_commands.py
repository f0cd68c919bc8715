"""The command line as a user types it, over a tiny model that it compiles itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from openai import OpenAI

from mlcc import cli
from tests.helpers import shared
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TVM_USE_RUNTIME_LIB": "1"}
MLCC = [sys.executable, "-m", "mlcc"]


def mlcc(
    *words: str | Path, stdin: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MLCC, *map(str, words)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=300,
        env={**ENVIRONMENT, **environment},
    )


def one_line_error(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    return lines[0]


@pytest.fixture
def error_of(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line of a command that is refused before it starts a process or reads its input: in
    this process, as each other imports for a third of a second."""

    def refused(*words: str | Path) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, words)])
        code, stderr = ended.value.code, capfd.readouterr().err
        assert isinstance(code, int)
        return one_line_error(subprocess.CompletedProcess(words, code, "", stderr))

    return refused


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A checkpoint, and an environment with a cache of its own."""
    folder = tmp_path_factory.mktemp("world")
    cache = shared.own_cache(folder / "cache")
    return write_checkpoint(folder / "tiny"), {"XDG_CACHE_HOME": cache}


@pytest.fixture(scope="module")
def artifact(world: tuple[Path, dict[str, str]]) -> Path:
    """The checkpoint, compiled on the way to its first answer."""
    checkpoint, environment = world
    done = mlcc("run", checkpoint, "hi", "--max-tokens", "4", "--seed", "3", **environment)
    assert done.returncode == 0, done.stderr
    assert "is not compiled yet: compiling it once into" in done.stderr
    assert "compiling" not in done.stdout and "note:" not in done.stdout
    assert done.stderr.endswith("note: cut off at --max-tokens 4\n")
    (found,) = (Path(environment["XDG_CACHE_HOME"]) / "mlcc" / "compiled").glob("*/model")
    return found


def test_a_compile_that_is_refused_is_one_line(world: tuple[Path, dict[str, str]]) -> None:
    checkpoint, environment = world
    environment = {**environment, "MLCC_PROGRESS": "none"}  # loading the compiler may take long
    error = one_line_error(mlcc("run", checkpoint, "hi", "--target", "cpuu", **environment))
    assert "unknown target 'cpuu'; use one of: cpu" in error
    away = {
        **environment,
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": environment["XDG_CACHE_HOME"],
    }
    error = one_line_error(mlcc("run", "org/away", "hi", **away))
    assert "the hub cannot be reached" in error


def test_run_chat_and_cache(artifact: Path, world: tuple[Path, dict[str, str]]) -> None:
    checkpoint, environment = world
    seeded = ("--seed", "3", "--max-tokens", "12")
    first = mlcc("run", checkpoint, "hello", *seeded, **environment)
    assert "compiling" not in first.stderr and first.stdout.endswith("\n") and first.stdout.strip()
    assert mlcc("chat", artifact, "hello", *seeded).stdout == first.stdout
    assert mlcc("chat", artifact, *seeded, stdin="hello\n").stdout == first.stdout
    assert mlcc("run", artifact, "-", "--raw", *seeded, stdin="hello").stdout != first.stdout
    listed = mlcc("cache", "list", **environment)
    assert re.search(r"tiny-\w+ +\d.* MB +cpu q4 .*tiny\n", listed.stdout)


SCHEMA = '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], \
"additionalProperties": false}'


def test_run_holds_an_answer_to_a_schema(
    artifact: Path, tmp_path: Path, error_of: Callable[..., str]
) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    for given in (SCHEMA, tmp_path / "schema.json"):
        done = mlcc("run", artifact, "hi", "--json-schema", given, "--top-k", "9", "--min-p", "0")
        assert json.loads(done.stdout)["a"] in (1, 2), done.stderr
    for given, words in {
        "nosuch": "cannot be read",
        "{": "no JSON",
        '{"not": {}}': "'not'",
    }.items():
        assert words in error_of("run", artifact, "hi", "--json-schema", given)


def test_run_has_instructions(artifact: Path, error_of: Callable[..., str]) -> None:
    outputs = [mlcc("run", artifact, "hi", "--max-tokens", "8", "--temperature", "0", *more).stdout
            for more in ((), ("--system", "Say nothing."))]  # fmt: skip
    assert outputs[0] != outputs[1]
    error = error_of("run", artifact, "hi", "--raw", "--system", "x")
    assert "--system is for a chat template" in error


def test_cache_is_cleaned_by_name_and_wholly(tmp_path: Path) -> None:
    cache = tmp_path / "mlcc" / "compiled"
    for name in ("a-1", "b-2", "c-3"):
        (cache / name / "model").mkdir(parents=True)
        source = json.dumps({"model": name, "options": ["--target", "cpu", "--quant", "q4"]})
        (cache / name / "source.json").write_text(source)
        (cache / name / "model" / "mlcc.json").touch()
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert mlcc("cache", "list", **environment).stdout.count("cpu q4") == 3
    assert "'x'" in one_line_error(mlcc("cache", "clean", "x", **environment))
    with FileLock(cache / "b-2" / ".lock"):
        assert "being compiled: kept" in mlcc("cache", "clean", "b-2", **environment).stderr
    mlcc("cache", "clean", "b-2", **environment)
    assert sorted(path.name for path in cache.iterdir()) == ["a-1", "c-3"]
    assert "2 deleted" in mlcc("cache", "clean", **environment).stderr
    assert not list(cache.iterdir())


def test_what_a_killed_compile_left_is_put_away(tmp_path: Path) -> None:
    cache = tmp_path / "mlcc" / "compiled"
    for name in ("left-1", "running-2"):
        (cache / name).mkdir(parents=True)
        (cache / name / "source.json").write_text(json.dumps({"model": name}))
    with FileLock(cache / "running-2" / ".lock"):
        listed = mlcc("cache", "list", XDG_CACHE_HOME=str(tmp_path)).stdout
    assert "left-1" not in listed and "compiling" in listed
    assert [path.name for path in cache.iterdir()] == ["running-2"]


@contextmanager
def serving(artifact: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server, its port and the line that it says to try."""
    command = [*MLCC, "serve", str(artifact), "--port", "0", "--threads", "1", *options]
    environment = {**ENVIRONMENT, "MLCC_PROGRESS": "none"}  # printed where loading takes a second
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stdout and server.stderr
            ready, curl = server.stdout.readline(), server.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:(\d+)/v1", ready)
            assert url, server.stderr.read()
            yield server, url[1], curl
        finally:
            server.kill()  # one that did not end would be waited for


@pytest.mark.parametrize("special", [False, True])
def test_serve_answers_and_ends(artifact: Path, special: bool) -> None:
    options = ["--parse-special"] if special else []
    with serving(artifact, *options) as (server, port, _):
        with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
            answer = client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=5
            )
            assert answer.usage and answer.usage.prompt_tokens == 1 + 1 + 2 + 1
            written = [{"role": "user", "content": "<|user|>"}]
            answer = client.chat.completions.create(model="tiny", messages=written, max_tokens=5)
        letters = 1 if special else len("<|user|>")
        assert answer.usage and answer.usage.prompt_tokens == 1 + 1 + letters + 1
        taken = mlcc("serve", artifact, "--port", port)
        assert f"port {port} of 127.0.0.1 is in use" in one_line_error(taken)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
        assert server.stderr and not server.stderr.read().strip()


@pytest.mark.needs("curl")
def test_the_line_that_a_server_says_to_try(artifact: Path) -> None:
    with serving(artifact) as (_, port, curl):
        assert curl.startswith(f"curl http://127.0.0.1:{port}/") and "Hello!" in curl
        shell = subprocess.run(curl, shell=True, capture_output=True, text=True)
        assert json.loads(shell.stdout)["object"] == "chat.completion"
        options = ("--tokens", "3", "--prompt-tokens", "4", "--runs", "2", "--concurrency", "2")
        found = mlcc("bench", "--url", f"http://127.0.0.1:{port}", *options, "--json")
        assert [run["tokens"] for run in json.loads(found.stdout)["runs"]] == [3, 3]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_compile_that_is_ended_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        [*MLCC, "run", str(checkpoint), "hi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **cache},
        start_new_session=True,
    ) as process:
        assert process.stderr
        seen = ""
        while "KV cache:" not in seen:  # from here on there is something to put away
            line = process.stderr.readline()
            assert line, seen
            seen += line
        os.killpg(process.pid, number)
        # The child holds stderr too: this returns only when both are gone.
        assert "Traceback" not in process.stderr.read()
        assert process.wait(60) == code
    assert not list((tmp_path / "cache" / "mlcc" / "compiled").iterdir())


def test_a_compile_that_fails_is_not_kept(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny")
    (checkpoint / "model.safetensors").write_bytes(b"no weights")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "MLCC_PROGRESS": "none"}
    assert "truncated" in one_line_error(mlcc("run", checkpoint, "hi", **cache))
    listed = mlcc("cache", "list", **cache)
    assert listed.stdout == "" and "0 kept" in listed.stderr


@pytest.mark.parametrize("words", [["chat"], ["run", "-"]])
def test_a_missing_model_is_reported_before_its_prompt_is_read(
    words: list[str], error_of: Callable[..., str]
) -> None:
    """pytest's standard input cannot be read."""
    command, *prompt = words
    assert "nosuch: does not exist" in error_of(command, "nosuch", *prompt)


def test_errors_are_one_line(tmp_path: Path, artifact: Path, error_of: Callable[..., str]) -> None:
    assert "does not exist" in error_of("chat", tmp_path / "x", "hi")
    assert "neither mlcc.json nor config.json" in error_of("run", tmp_path, "hi")
    assert "--context" in error_of("run", artifact, "hi", "--context", "100000")
    too_many = error_of("run", artifact, "hi", "--max-step-tokens", "513")
    assert "not within 1 .. 512" in too_many and "mlcc compile --max-step-tokens 513" in too_many
    assert "--quant cannot be obeyed" in error_of("run", artifact, "hi", "--quant", "q8")
    assert "standard input is empty" in one_line_error(mlcc("chat", artifact))
    for words in (
        ("chat", artifact),
        ("run", artifact, "-"),
        ("run", artifact, os.fsdecode(b"\xff")),
    ):
        done = subprocess.run(
            [*MLCC, *map(str, words)], input=b"h\xff", capture_output=True, env=ENVIRONMENT
        )
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1, done.stderr
        assert b"not valid UTF-8" in done.stderr
    (tmp_path / "mlcc.json").write_text("{}")
    assert "mlcc.json" in error_of("serve", tmp_path)
    assert mlcc("run").returncode == 2  # click's own words
    with pytest.raises(SystemExit, match="2"):
        cli.main(["no-such-command"])


def test_an_unusable_cache_names_its_variable(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny")
    done = mlcc("run", checkpoint, "hi", XDG_CACHE_HOME="/dev/null/x")
    assert "XDG_CACHE_HOME" in one_line_error(done)


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("filelock", "compile", "compile"),
        ("tvm", "compile", "compile"),
        ("tvm", "compile", "run"),
        ("filelock", "compile", "run"),
        ("starlette", "serve", "serve"),
    ],
)
def test_a_bare_install_says_what_to_install(
    tmp_path: Path, package: str, extra: str, command: str
) -> None:
    words = [command, str(write_checkpoint(tmp_path / "tiny")), *(["hi"] * (command == "run"))]
    program = f"import sys, mlcc.cli; sys.modules[{package!r}] = None; mlcc.cli.main({words})"
    # loading the compiler may take long enough for a line of its own
    environment = {**ENVIRONMENT, "TVM_USE_RUNTIME_LIB": "0", "MLCC_PROGRESS": "none"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert f'pip install "mlcc[{extra}]"' in one_line_error(done) and package in done.stderr


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    for done in (
        mlcc("--debug", "run", tmp_path, "hi"),
        mlcc("run", tmp_path, "hi", MLCC_DEBUG="1"),
    ):
        assert done.returncode == 2 and "Traceback" in done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("error: ")


def test_help_lists_all_commands_and_loads_none() -> None:
    program = (
        "import sys, mlcc.cli\n"
        "try: mlcc.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'tvm', 'numpy', 'jinja2', 'tokenizers', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
    for name in ("cache", "chat", "compile", "run", "serve"):
        assert re.search(rf"^  {name} +[A-Z]", done.stdout, re.MULTILINE)
    assert mlcc("--version").stdout.startswith("mlcc, version ")
