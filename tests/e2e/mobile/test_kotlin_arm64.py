"""The demo's answer on an emulated arm64: qemu, Debian's JVM, and the JAR with its native parts."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers.demo_model import CONTEXT, DEMO
from tests.helpers.emulators.arm64_python import arm64_python
from tests.helpers.mobile.kotlin_package import ANDROID, MAVEN, Package, packing, run

pytestmark = [
    pytest.mark.long,  # compiles everything by zig, and emulates
    pytest.mark.needs("qemu"),
    pytest.mark.needs("maven"),
    pytest.mark.needs("an arm64 compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates arm64 on x86-64"),
]
SECONDS = 900


def test_a_jar_answers_on_arm64(kotlin_package: Package, tmp_path: Path) -> None:
    root = arm64_python()
    parts, jar, model = tmp_path / "parts", tmp_path / "mlcc.jar", tmp_path / "model"
    run([sys.executable, str(ANDROID / "package.py"), "parts", str(parts), "--root", str(root)])
    packing("jar").write([parts, kotlin_package.folder / "parts"], jar)
    row = get_target("cpu", Choices(cpu="arm-dotprod"))
    options = Options(quant="f32", context=CONTEXT)
    compile_model(Checkpoint.open(DEMO / "model"), row, model, options, Progress())
    run([*MAVEN, "-f", str(ANDROID / "pom.xml"), "-pl", "mlcc-chat", "-am", "process-classes"])
    chat = ANDROID / "mlcc-chat" / "target"
    java = root / "usr/lib/jvm/java-17-openjdk-arm64/bin/java"
    path = f"{jar}:{kotlin_package.class_path}:{chat}/classes:{chat}/lib/*"
    command = [java, "-XX:TieredStopAtLevel=1", f"-Dmlcc.cache={tmp_path}/cache", "-cp", path]
    done = subprocess.run(
        ["qemu-aarch64", "-L", root, *command, "dev.mlcc.chat.MainKt", model, "What is 17 + 25?"],
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0 and "42" in done.stdout, done
