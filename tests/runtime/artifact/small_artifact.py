"""Builds a small artifact with the real writer; its library is a few bytes that are never
loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from mlcc.artifact.manifest import Manifest, abi_hash
from mlcc.artifact.schema import (
    CacheInfo,
    LibraryInfo,
    Limits,
    MemoryPlan,
    ModelInfo,
    QuantizationInfo,
    TargetInfo,
    TensorSpec,
    ToolVersions,
    WeightsInfo,
    tables_of,
)
from mlcc.engine.batch.tables import CacheGroup
from mlcc_compiler.artifact.package import ArtifactWriter

WEIGHTS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.uint8)}
Change = Callable[[Manifest], Manifest]


def specs(weights: dict[str, Any]) -> list[TensorSpec]:
    return [
        TensorSpec(name=name, dtype=array.dtype.name, shape=array.shape)
        for name, array in weights.items()
    ]


LIMITS = Limits(
    context=128, max_batch=4, max_step_tokens=64, max_rows=4, max_step_pages=32, max_copies=4
)


def manifest(weights: WeightsInfo, licence: str | None = None) -> Manifest:
    tvm, tvm_ffi = version("apache-tvm"), version("apache-tvm-ffi")
    stored = sum(tensor.nbytes for tensor in weights.tensors)
    return Manifest(
        abi=abi_hash(tvm, tvm_ffi),
        model=ModelInfo(
            name="org/tiny",
            architecture="llama",
            config={"rms_norm_eps": 1e-05, "name": "é"},
            vocab_size=16,
            eos_token_ids=(2, 5),
            special_tokens={"bos_token": "<s>"},
            licence=licence,
        ),
        quantization=QuantizationInfo(name="q4", options={"bits": 4}),
        target=TargetInfo(
            name="cpu", device="cpu", arch="", triple="", cpu="generic", features=(), options={}
        ),
        library=LibraryInfo(path="model.so", kind="so"),
        functions=("forward", "sample"),
        caches=(
            CacheInfo(
                kind="paged",
                page_size=16,
                window=None,
                pool=8,
                layers=(0,),
                tensors=(
                    TensorSpec(name="kv.0", dtype="float16", shape=("num_pages", 2, 1, 16, 64)),
                ),
            ),
        ),
        limits=LIMITS,
        tables=tables_of(LIMITS.layout([CacheGroup("paged", 16)])),
        weights=weights,
        memory=MemoryPlan(weights_bytes=stored, cache_bytes=32768, workspace_bytes=1000),
        tools=ToolVersions(mlcc="0.1.0", tvm=tvm, tvm_ffi=tvm_ffi),
    )


def fill(writer: ArtifactWriter, weights: dict[str, Any] = WEIGHTS) -> Manifest:
    """Everything but `finish`."""
    writer.path("model.so").write_bytes(b"\x7fELF" + bytes(range(256)))
    writer.add_bytes("tokenizer.json", b'{"model": {}}')
    writer.add_bytes("chat_template.jinja", b"{{ messages }}")
    writer.add_bytes("additional_chat_templates/tool_use.jinja", "{{ é }}".encode())
    writer.add_bytes("generation_config.json", b'{"temperature": 0.5}')
    writer.add_bytes("LICENSE", b"free")
    return manifest(writer.add_weights(specs(weights), weights.values()), "LICENSE")


def make(out: Path, weights: dict[str, Any] = WEIGHTS, change: Change = lambda m: m) -> Path:
    """A sound artifact, its manifest passed through `change` before it is sealed."""
    with ArtifactWriter(out) as writer:
        return writer.finish(change(fill(writer, weights)))


def with_target(**fields: Any) -> Change:
    return lambda m: replace(m, target=replace(m.target, **fields))


def rewrite(folder: Path, change: Change) -> Path:
    """Change and seal a manifest that is already there, as a foreign writer could."""
    path = folder / "mlcc.json"
    path.write_bytes(change(Manifest.from_bytes(path.read_bytes())).to_bytes())
    return folder
