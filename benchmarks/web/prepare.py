"""The models of the web benchmark: one checkpoint of each shape, compiled and exported.

    FOLDER/checkpoint/135m      random weights (`random_checkpoint.py`); the demo is the bundled one
    FOLDER/mlcc/SHAPE           `mlcc compile --target webgpu --quant q4`, f32 and f16 libraries
    FOLDER/onnx/SHAPE           as transformers.js loads it: q4 weights, f32 activations, KV cache
    FOLDER/venv                 the exporter, outside the project's environment

Existing files are kept: delete the folder to make everything again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "examples" / "demo" / "model"
SHAPES = ("demo", "135m")
CONTEXT, CHATS = 512, 4
"""Bounds of mlcc's libraries: enough for a prompt of 256 tokens and its answer."""
EXPORTER = ("onnxruntime-genai==0.18.0", "onnxruntime==1.31.1", "onnx==1.23.2", "onnx-ir==1.1.0")
OPTIONS = ("block_size=32", "prune_lm_head=true", "use_webgpu_fp32=true")
"""Groups of 32 as mlcc has them; logits of a prompt's last token only; SwiftShader has no f16."""


def prepare(folder: Path, shapes: list[str], engines: list[str]) -> None:
    """Make missing models and node modules."""
    for shape in shapes:
        source = checkpoint(folder, shape)
        if "mlcc" in engines:
            compile_mlcc(source, folder / "mlcc" / shape)
        if "peer" in engines:
            export_onnx(source, folder / "onnx" / shape, exporter(folder / "venv"))
    if not (HERE / "node_modules").exists():
        subprocess.run(["npm", "ci", "--no-progress"], cwd=HERE, check=True, stdout=sys.stderr)


def checkpoint(folder: Path, shape: str) -> Path:
    if shape == "demo":
        return DEMO
    path = folder / "checkpoint" / shape
    if not path.exists():
        command = [sys.executable, "-m", "benchmarks.models.random_checkpoint", str(path)]
        subprocess.run([*command, "--shape", shape], check=True)
    return path


def compile_mlcc(source: Path, out: Path) -> None:
    if out.exists():
        return
    command = [sys.executable, "-m", "mlcc_compiler", "compile", str(source), "--target", "webgpu"]
    sizes = ["--quant", "q4", "--context", str(CONTEXT), "--max-batch", str(CHATS)]
    subprocess.run([*command, *sizes, "-o", str(out)], check=True, stdout=sys.stderr)


def exporter(folder: Path) -> Path:
    """An environment with the exporter, which sees torch and transformers of this one."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "of_mlcc.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *EXPORTER], check=True)
    return python


def export_onnx(source: Path, out: Path, python: Path) -> None:
    """Export with onnxruntime-genai's builder, and arrange the files for transformers.js."""
    if out.exists():
        return
    raw = out.with_name(out.name + "-raw")
    builder = [str(python), "-m", "onnxruntime_genai.models.builder", "-m", "", "-i", str(source)]
    files = ["-o", str(raw), "-c", str(raw / "cache"), "-p", "int4", "-e", "webgpu"]
    command = [*builder, *files, "--extra_options", *OPTIONS]
    subprocess.run(command, check=True, capture_output=True, text=True)
    adapt = [str(python), str(HERE / "adapt_onnx.py"), str(raw), str(source), str(out)]
    subprocess.run(adapt, check=True)
    shutil.rmtree(raw)


def versions() -> dict[str, str]:
    """The installed versions of the peers' packages."""
    names = ("@huggingface/transformers", "onnxruntime-web", "playwright-core")
    found = {}
    for name in names:
        package = json.loads((HERE / "node_modules" / name / "package.json").read_text())
        found[name] = str(package["version"])
    return found
