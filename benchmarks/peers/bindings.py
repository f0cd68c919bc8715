"""Tokens a second of Kotlin or Swift beside Python, the same engine in process, in turn.

    python -m benchmarks.peers.bindings kotlin|swift MODEL [--rounds 8] [--tokens 128]

MODEL is compiled for cpu. Build first: `python mobile/android/package.py jar`, or `python
mobile/swift/build.py build -c release`. Both programs stay loaded; each round requests a whole
answer and a streamed one from each. Prints best and median speeds, the load of other processes, and
one JSON line. The cost of streaming in Kotlin is the CPU time of Java's threads per token (JNI,
parsing, coroutines), beside the time of a decode step; Swift's is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.cpu import other_load

ANDROID = Path(__file__).resolve().parents[2] / "mobile" / "android"
REPOSITORY = ANDROID.parents[1] / "build" / "mobile" / "repository"
PYTHON = """
import sys, time
from mlcc import Engine
with Engine(sys.argv[1]) as engine:
    print("ready", flush=True)
    for line in sys.stdin:
        kind, tokens = line.split()
        fields = dict(messages=[{"role": "user", "content": "Count up from one."}], temperature=0,
                      max_tokens=int(tokens), ignore_eos=True, stream=kind == "stream")
        start = time.perf_counter()
        answer = engine.chat.completions.create(**fields)
        if kind == "stream":
            for chunk in answer:
                pass
        print(time.perf_counter() - start, tokens, 0, flush=True)
"""
Row = dict[str, float]


def command_of_java(model: Path) -> list[str]:
    """The program of mlcc-jvm's tests, over the JARs."""
    module = ANDROID / "mlcc-jvm" / "target"
    jars = map(str, REPOSITORY.rglob("*.jar"))
    path = os.pathsep.join([str(module / "test-classes"), *jars, f"{module / 'lib'}/*"])
    return ["java", "-cp", path, "dev.mlcc.jvm.SpeedKt", str(model)]


def command_of_swift(model: Path) -> list[str]:
    """`mlcc-measure` of the package, built for release."""
    build = runpy.run_path(str(ANDROID.with_name("swift") / "build.py"))
    os.environ.update(build["environment"]())
    program = build["SCRATCH"] / "release" / "mlcc-measure"
    found: list[str] = build["command"]([str(program), "speed", str(model)], [model])
    return found


class Program:
    """A child process with a loaded model."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready", f"{command[0]} did not load the model; see above"

    def answer(self, kind: str, tokens: int) -> Row:
        assert self._process.stdin
        self._process.stdin.write(f"{kind} {tokens}\n")
        self._process.stdin.flush()
        seconds, count, computed = map(float, self._line().split())
        return {"tokens_s": count / seconds, "own_us": computed / count}

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=("kotlin", "swift"))
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--warm", type=int, default=8000, help="tokens streamed before, for Java's compiler"
    )
    given = parser.parse_args()
    name = given.language.capitalize()
    model = given.model.resolve()
    commands = {
        name: (command_of_java if name == "Kotlin" else command_of_swift)(model),
        "Python": [sys.executable, "-c", PYTHON, str(model)],
    }
    programs = {language: Program(command) for language, command in commands.items()}
    rows_by_case: dict[str, list[Row]] = {}
    for _ in range(given.warm // given.tokens):
        programs[name].answer("stream", given.tokens)
    for number in range(given.rounds):
        turn = list(programs.items())
        for language, program in turn if number % 2 else reversed(turn):
            for kind in ("whole", "stream"):
                row = program.answer(kind, given.tokens) | {"others": other_load(0.3)}
                rows_by_case.setdefault(f"{language}, {kind}", []).append(row)
    for program in programs.values():
        program.close()
    report(name, rows_by_case)


def report(language: str, rows_by_case: dict[str, list[Row]]) -> None:
    """Print the table and the JSON line."""
    print("| | best tok/s | median tok/s | own us a token | other cores |\n|---|--:|--:|--:|--:|")
    table = {}
    for name, rows in rows_by_case.items():
        best = max(row["tokens_s"] for row in rows)
        middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        table[name] = {"best": best, **middle}
        print(f"| {name} | {best:.1f} | {middle['tokens_s']:.1f} | ", end="")
        print(f"{middle['own_us']:.0f} | {middle['others']:.2f} |")
    for kind in ("whole", "stream"):
        other, python = (table[f"{name}, {kind}"] for name in (language, "Python"))
        ratios = {key: other[key] / python[key] for key in ("best", "tokens_s")}
        table[f"{language} / Python, {kind}"] = ratios
        print(f"{kind}: {ratios['best']:.3f} of Python's best, {ratios['tokens_s']:.3f} of medians")
    print(json.dumps(table))


if __name__ == "__main__":
    main()
