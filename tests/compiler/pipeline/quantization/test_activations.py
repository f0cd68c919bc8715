"""The dtype of activations is data: from a target's row to each value of the graph, to the kernels,
and to the manifest. Only float32 has kernels; another dtype is refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.engine.batch.tables import StepLayout
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir._tvm import relax, tvm
from mlcc_compiler.ir.graph import Traced, call_parts, dtype_of
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.options import Options
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_compiler.pipeline import Bounds, LoweringConfig, lower, trace
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import CASES, SMALL
from tests.helpers import needs
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

VOCAB = 131
EXACT = {"rope_table", "route"}
"""Operators with float32 inputs for any dtype of activations; logits are float32 too."""
FAMILIES = [c for c in CASES if c in ("llama", "phi3", "gemma2", "qwen3_moe", "deepseek_v2")]
FAMILIES += ["qwen3_next-experts", "falcon_h1"]


def config(case: str) -> dict[str, Any]:
    """A config.json, as `transformers` writes it, of a row of `CASES`."""
    name, options = CASES[case]
    written: dict[str, Any] = getattr(transformers, name)(**{**SMALL, **options}).to_dict()
    return written


def traced(case: str, dtype: str) -> Traced:
    return trace(build_model(config(case), 64, dtype).model)


def results(function: relax.Function) -> Iterator[tuple[str, Any]]:
    """(operator, tensor) of each call of a graph, of each of a tuple's."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                name = call_parts(binding.value)[0].rpartition(".")[2]
                kind = binding.var.ty
                for each in kind.fields if isinstance(kind, relax.TupleType) else [kind]:
                    yield name, each


@pytest.mark.parametrize("case", FAMILIES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_activation_of_a_traced_model_is_of_that_dtype(case: str, dtype: str) -> None:
    function = traced(case, dtype).module["forward"]
    last = [int(d) for d in function.body.body.ty.shape.values[1:]]
    assert last == [VOCAB] and dtype_of(function.body.body) == "float32"
    seen = set()
    for name, kind in results(function):
        of_logits = int(kind.shape.values[-1]) == VOCAB
        of_gate = name == "linear" and int(kind.shape.values[-1]) in (1, 4, 6, 7)
        if str(kind.dtype) == "int32":
            assert name == "route"
        elif name in EXACT or of_logits or of_gate:
            assert str(kind.dtype) == "float32", name
        else:
            assert str(kind.dtype) == dtype, name
            seen.add(name)
    assert {"embedding", "linear", "rms_norm", "add", "take_rows"} <= seen
    assert seen & {"attention", "latent_attention"}


def test_states_and_weights_keep_their_own_dtypes() -> None:
    whole = traced("qwen3_next-experts", "float16")
    (_, states) = caches_of(whole.module, 16, "float16").infos([1, 1])
    assert states.kind == "state" and {t.dtype for t in states.tensors} == {"float32"}
    *_, weights = whole.module["forward"].params
    assert {str(field.dtype) for field in weights.ty.fields} == {"float32"}  # a checkpoint's


@pytest.mark.parametrize("target", ["cpu", "vulkan"])
@pytest.mark.parametrize("case", ["llama", "deepseek_v2", "qwen3_next-experts"])
def test_kernels_of_other_activations_are_never_called(target: str, case: str) -> None:
    """A graph in float16 does not reach kernels that were made for float32, whichever is first."""
    row, whole = get_target(target), traced(case, "float16")
    caches = caches_of(whole.module, 16, "float16")
    layout = StepLayout.of(
        caches.groups, context=64, max_tokens=16, max_sequences=2, max_rows=2, max_copies=2
    )
    kernels, bounds = kernel_set_for(row), Bounds(layout, 64)
    message = r"kernel '\w+' is made for .*'float32'.*, and the graph has .*'float16'"
    with pytest.raises(TypeError, match=message):
        lower(whole, LoweringConfig(row, kernels, caches, bounds, VOCAB))


def test_the_row_says_what_kernels_frames_have() -> None:
    """Kernels that only move activations run in float16 as they are."""
    row = replace(get_target("cpu"), activation_dtype="float16")
    rows, parts = (
        build(kernel_set_for(row).kernel(name, *arguments))
        for name, arguments in (
            ("take_rows", ((8,), ())),
            ("take_parts", ((8,), 2, "[[1, 2]]")),
        )
    )
    x = np.arange(40, dtype=np.float16).reshape(5, 8)
    wanted = np.array([4, 0, 4], np.int32)
    np.testing.assert_array_equal(run(rows, [x, wanted], (3, 8)), x[wanted])
    np.testing.assert_array_equal(run(parts, [x], (5, 4)), x[:, [1, 2, 5, 6]])


def build(kernel: Any) -> Any:
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    return tvm.compile(module, tvm.target.Target("llvm"))["main"]


def run(function: Any, inputs: list[Any], shape: tuple[int, ...]) -> Any:
    out = tvm.runtime.tensor(np.zeros(shape, np.float16))
    function(*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(write_checkpoint(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.mark.parametrize("name", ["cpu", "cuda", "reference"])
def test_a_row_that_nothing_computes_is_refused_before_any_work(
    checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    needs.require_target(name)
    row = get_target(name, Choices(archs=("sm_90",)) if name == "cuda" else Choices())
    other = replace(row, activation_dtype="float16")
    message = (
        f"target '{name}' asks for activations in float16, which no kernels compute yet; "
        "set activation_dtype to 'float32' in the target's row"
    )
    for each in (other, replace(row, alternatives=(other,))):
        with pytest.raises(UnsupportedError) as caught:
            compile_model(checkpoint, each, tmp_path / "out", Options(context=64), Progress())
        assert caught.value.message == message
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_says_what_was_compiled(checkpoint: Checkpoint, tmp_path: Path) -> None:
    row, options = get_target("reference"), Options(quant="f32", context=64)
    assert make_plan(checkpoint, row, options).config.activation_dtype == "float32"
    out = compile_model(checkpoint, row, tmp_path / "out", options, Progress())
    data = (out / MANIFEST_NAME).read_bytes()
    manifest = Manifest.from_bytes(data)
    assert manifest.activation_dtype == "float32" and b'"activation_dtype": "float32"' in data
    assert replace(manifest, activation_dtype="float16").to_bytes() != data == manifest.to_bytes()
