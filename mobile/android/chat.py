#!/usr/bin/env python3
"""Builds mlcc for the JVM and chats there: the whole way from a checkpoint to Kotlin's answer.

    python mobile/android/chat.py [--model FOLDER] ["What is 17 + 25?"]

Without a model the demo's is compiled. Run by the Python of .venv (`python3 dev.py demo` makes it);
needs a C++ compiler, a JDK and Maven: apt install g++ default-jdk-headless maven
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
    """Build what is to be built, and hand over to Java."""
    parser = argparse.ArgumentParser(description="Chat with a compiled model on the JVM.")
    parser.add_argument("question", nargs="?", help="one question; without it: a conversation")
    parser.add_argument("--model", type=Path, help="a folder that `mlcc compile` made")
    asked = parser.parse_args()
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            sys.exit(f"chat: there is no {tool}; apt install default-jdk-headless maven")
    run(sys.executable, ROOT / "mobile" / "c" / "build.py", LIBRARIES)
    run(sys.executable, HERE / "jni" / "build.py", LIBRARIES)
    if asked.model is None and not DEMO.exists():
        checkpoint = ROOT / "examples" / "demo" / "model"
        run(sys.executable, "-m", "mlcc", "compile", "-q", "--cpu", "host", checkpoint, "-o", DEMO)
    run("mvn", "-q", "-f", HERE / "pom.xml", "-pl", "mlcc-chat", "-am", "process-classes")
    command = java(LIBRARIES, asked.model or DEMO, *([asked.question] if asked.question else []))
    os.execvp(command[0], command)


def java(libraries: Path, model: Path, *question: str) -> list[str]:
    """The command of the chat that Maven has built."""
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
    """Or end with what went wrong, which the command has said."""
    if subprocess.run(list(map(str, command)), check=False).returncode:
        sys.exit(f"chat: `{' '.join(map(str, command))}` failed")


if __name__ == "__main__":
    main()
