#!/usr/bin/env python3
"""Builds mlcc for the JVM and chats with a model there.

    python mobile/android/chat.py [--model FOLDER] ["What is 17 + 25?"]

Without --model the demo model is compiled. Run it with .venv's Python (`python3 dev.py demo`
creates it). Needs a C++ compiler, a JDK and Maven: apt install g++ default-jdk-headless maven
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "mobile"
LIBRARIES = BUILD / "c"
DEMO = BUILD / "demo"


def main() -> None:
    """Build all parts, then replace this process by Java."""
    parser = argparse.ArgumentParser(description="Chat with a compiled model on the JVM.")
    parser.add_argument("question", nargs="?", help="one question; without it: a conversation")
    parser.add_argument("--model", type=Path, help="a folder that `mlcc compile` made")
    arguments = parser.parse_args()
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            sys.exit(f"chat: there is no {tool}; apt install default-jdk-headless maven")
    run(sys.executable, ROOT / "mobile" / "c" / "build.py", LIBRARIES)
    run(sys.executable, HERE / "jni" / "build.py", LIBRARIES)
    if arguments.model is None and not DEMO.exists():
        checkpoint = ROOT / "examples" / "demo" / "model"
        run(sys.executable, "-m", "mlcc", "compile", "-q", "--cpu", "host", checkpoint, "-o", DEMO)
    run("mvn", "-q", "-f", HERE / "pom.xml", "-pl", "mlcc-chat", "-am", "process-classes")
    command = java(
        LIBRARIES, arguments.model or DEMO, *([arguments.question] if arguments.question else [])
    )
    os.execvp(command[0], command)


def java(libraries: Path, model: Path, *question: str) -> list[str]:
    """The command line of the chat program."""
    classes = [HERE / name / "target" / "classes" for name in ("mlcc-core", "mlcc-chat")]
    path = [*map(str, classes), str(HERE / "mlcc-chat" / "target" / "lib" / "*")]
    return [
        "java",
        "-cp",
        os.pathsep.join(path),
        f"-Dmlcc.libraries={libraries}",
        f"-Dmlcc.python.path={sysconfig.get_path('purelib')}",  # Hugging Face's tokenizers
        "dev.mlcc.chat.MainKt",
        str(model),
        *question,
    ]


def run(*command: str | Path) -> None:
    """Run a command, whose output is shown. Raises SystemExit if it fails."""
    if subprocess.run(list(map(str, command)), check=False).returncode:
        sys.exit(f"chat: `{' '.join(map(str, command))}` failed")


if __name__ == "__main__":
    main()
