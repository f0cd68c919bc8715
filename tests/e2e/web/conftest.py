"""web/dist, built once, and the models in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import transformers

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import SMALL, save_random
from tests.helpers import needs
from tests.helpers.demo_model import DEMO
from tests.helpers.web_package import built_web


@pytest.fixture(scope="session")
def web() -> Path:
    """web/, with everything built."""
    return built_web()


@pytest.fixture(scope="session")
def demo_webgpu(compiled_demo: Callable[[str, str], Path]) -> Path:
    """The demo model for target webgpu, in float32."""
    return compiled_demo("q4", "webgpu-f32")


@pytest.fixture(scope="session")
def demo_server(web: Path, compiled_demo: Callable[[str, str], Path]) -> Iterator[str]:
    """The address of `mlcc serve` of the demo model, with the chat page as it is built."""
    model = compiled_demo("q4", "cpu")
    code = "from mlcc.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(model), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("Chat page: "):
                yield line.removeprefix("Chat page: ").strip().rstrip("/")
                return
        raise AssertionError("the server ended before it was ready; its stderr says why")
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="session")
def small_webgpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small random checkpoint with the demo's tokenizer, and its artifact for target webgpu, in
    float32. For tests of steps: a step on SwiftShader takes a tenth of the demo model's time, and
    answers to different prompts differ from their first token."""
    needs.require_target("webgpu")
    folder = tmp_path_factory.mktemp("small")
    source = folder / "model"
    sizes = {**SMALL, "vocab_size": 1280, "max_position_embeddings": 256}
    save_random(transformers.LlamaConfig(**sizes), source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / "model" / name, source)
    row, options = get_target("webgpu", Choices(f16=False)), Options(quant="q4", context=256)
    out = compile_model(Checkpoint.open(source), row, folder / "webgpu", options, Progress())
    return source, out
