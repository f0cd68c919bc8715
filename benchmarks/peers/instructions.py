"""The instructions of the CPU that engines of `cpu.py` use, by their own account."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

LLAMA = "avx2 avx512 avx512_vbmi avx512_vnni avx512_bf16 amx_int8 neon dotprod matmul_int8 sve"


def of_mlcc(artifact: Path) -> str:
    """The features that a model's first library needs, in LLVM's spelling."""
    return " ".join(json.loads((artifact / "mlcc.json").read_text())["target"]["features"])


def of_llama(bench: Path) -> str:
    """What libggml-cpu, beside llama-bench, was compiled for and finds here."""
    library = ctypes.CDLL(str(bench.with_name("libggml-cpu.so")))
    return " ".join(name for name in LLAMA.split() if getattr(library, f"ggml_cpu_has_{name}")())


OPENVINO = "all that oneDNN finds here"
"""OpenVINO does not report which."""
