"""Encoders from ONNX exports: weights to the bit, embeddings beside onnxruntime's, and refusals by
name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc.loader import open_model
from mlcc_compiler.checkpoint.formats.onnx import OnnxTensors
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from tests.compiler.checkpoint.helpers.onnx_exports import change, export, halved
from tests.compiler.models.helpers.encoder_checkpoints import CASES
from tests.compiler.models.test_encoders import BOUND, compiled, rows_of, texts_of


def oracle(path: Path, case: str, texts: list[list[int]]) -> list[Any]:
    """onnxruntime's rows, before they are made of length 1."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    rows = []
    for ids in texts:
        given = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        states = session.run(None, given)[0][0]
        rows.append(states[0] if CASES[case].pooling == "cls" else states.mean(0))
    return rows


def compiled_rows(folder: Path, target: str, texts: list[list[int]]) -> list[Any]:
    model = open_model(compiled(folder, target))
    try:
        return rows_of(model, texts)
    finally:
        model.close()


def same_weights(folder: Path, ignored: str = "pooler.") -> None:
    """The export's weights are the folder's safetensors', to the bit."""
    wanted, found = TensorFolder.open(folder), OnnxTensors.open(folder)
    names = [name for name in wanted.shapes if not name.startswith(ignored)]
    assert {f"model.{name}" for name in names} == set(found.shapes)
    for name in names:
        own = f"model.{name}"
        assert found.shapes[own] == wanted.shapes[name]
        assert np.array_equal(found.read(own), wanted.read(name)), name


@pytest.mark.parametrize(
    "case, name, options",
    [
        ("bert", "model.onnx", {"opset_version": 14}),  # norms and gelu in parts
        ("xlm-roberta", "onnx/model.onnx", {"opset_version": 18, "do_constant_folding": False}),
        ("modernbert", "onnx/model.onnx", {"opset_version": 20}),
    ],
)
def test_rows_are_onnxruntimes(
    case: str, name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = export(case, tmp_path, name=name, **options)
    same_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    texts = texts_of(120)
    rows = compiled_rows(tmp_path, "reference", texts)
    wanted = oracle(path, case, texts)
    assert np.std(wanted) > 0.2
    assert max(float(np.abs(a - b).max()) for a, b in zip(rows, wanted, strict=True)) < BOUND


def test_compiled_for_a_cpu_it_is_the_safetensors_model(tmp_path: Path) -> None:
    path, texts = export("roberta", tmp_path), texts_of(120)
    whole = compiled_rows(tmp_path, "cpu", texts)
    (tmp_path / "model.safetensors").unlink()
    rows = compiled_rows(tmp_path, "cpu", texts)
    assert all(np.array_equal(a, b) for a, b in zip(rows, whole, strict=True))
    wanted = oracle(path, "roberta", texts)
    assert max(float(np.abs(a - b).max()) for a, b in zip(rows, wanted, strict=True)) < BOUND


def _equal_biases(model: Any) -> None:
    """Biases that are not zero: the newer exporter omits zeros if a node needs none."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.constant_(parameter, 0.25)
        elif "Norm" in name:
            torch.nn.init.ones_(parameter)


@pytest.mark.parametrize("newer", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", ["bert", "bert-reranker", "modernbert"])
def test_tensors_that_exporters_store_once(case: str, newer: bool, tmp_path: Path) -> None:
    export(case, tmp_path, prepare=_equal_biases, newer=newer)
    same_weights(tmp_path, "-" if case == "bert-reranker" else "pooler.")


def test_an_export_of_sentence_transformers(tmp_path: Path) -> None:
    export("roberta", tmp_path, inner="auto_model")
    assert "encoder.layer.1.attention.self.key.weight" in OnnxTensors.open(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("case", ["roberta", "modernbert-biases"])
def test_the_newer_exporter(case: str, tmp_path: Path) -> None:
    export(case, tmp_path, newer=True)
    found, wanted = OnnxTensors.open(tmp_path), TensorFolder.open(tmp_path)
    for name in wanted.shapes:
        own = next((n for n in found.shapes if n.endswith(name)), None)
        assert (
            own is None
            if "pooler" in name
            else np.array_equal(found.read(str(own)), wanted.read(name))
        )


def test_float16_behind_casts(tmp_path: Path) -> None:
    path = export("bert", tmp_path)
    change(path, halved)
    found, wanted = OnnxTensors.open(tmp_path), TensorFolder.open(tmp_path)
    for name in ("embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.weight"):
        half = wanted.read(name).astype(np.float16).astype(np.float32)
        assert np.array_equal(found.read(f"model.{name}"), half)
        assert found.nearest[f"model.{name}"] == "f16"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export("bert", tmp_path_factory.mktemp("onnx"))


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(exported.read_bytes())
    return tmp_path


def test_external_data(folder: Path, exported: Path) -> None:
    _external(folder)
    found, wanted = OnnxTensors.open(folder), OnnxTensors.open(exported.parent)
    assert found.shapes == wanted.shapes and found.nbytes == wanted.nbytes
    assert all(np.array_equal(found.read(name), wanted.read(name)) for name in wanted.shapes)


def _external(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, size_threshold=0,
              location="model.onnx_data")  # fmt: skip


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("location", "../secret", "outside of the folder"),
        ("location", "/etc/passwd", "outside of the folder"),
        ("location", "nowhere", "missing"),
        ("location", "link", "leaves the folder"),
        ("offset", "9000000", "beyond the end"),
        ("offset", "-1", "do not fit"),
        ("length", "5", "do not fit"),
        ("length", "9" * 40, "do not fit"),
    ],
)
def test_external_data_stays_in_its_file(folder: Path, key: str, value: str, text: str) -> None:
    _external(folder)
    (folder / "link").symlink_to("/etc/passwd")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    entries = model.graph.initializer[0].external_data
    next(entry for entry in entries if entry.key == key).value = value
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=text):
        OnnxTensors.open(folder)


def _node(kind: str, domain: str = "") -> Callable[[Any], None]:
    def add(graph: Any) -> None:
        graph.node.append(onnx.helper.make_node(kind, ["a"], ["b"], name="odd", domain=domain))

    return add


def _product(graph: Any) -> Any:
    return next(n for n in graph.node if n.op_type == "MatMul" and "query" in n.name)


def _nameless(graph: Any) -> None:
    node = _product(graph)
    del graph.node[list(graph.node).index(node) + 1]  # the bias
    node.name = "MatMul_7"


def _misnamed(graph: Any) -> None:
    node = _product(graph)
    node.name = node.name.replace("query", "key")
    after = next(n for n in graph.node if node.output[0] in n.input)
    after.input[:] = [name.replace("query", "key") for name in after.input]


def _stray(graph: Any) -> None:
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "stray"))


def _again(graph: Any) -> None:
    graph.initializer.append(graph.initializer[0])


def _factor(graph: Any) -> None:
    node = _product(graph)
    made = onnx.helper.make_node("Gemm", node.input, node.output, name=node.name, alpha=2.0)
    node.CopyFrom(made)


@pytest.mark.parametrize(
    "how, text",
    [
        (_node("MatMulInteger"), "node 'odd' is 'MatMulInteger'"),
        (_node("QLinearMatMul"), "node 'odd' is 'QLinearMatMul'"),
        (_node("DequantizeLinear"), "node 'odd' is 'DequantizeLinear'"),
        (_node("Loop"), "node 'odd' is 'Loop'"),
        (_node("Attention", "com.microsoft"), "node 'odd' is 'com.microsoft.Attention'"),
        (_nameless, "node 'MatMul_7'"),
        (_misnamed, "key.weight' is there twice"),
        (_stray, "tensor 'stray'"),
        (_factor, "query/MatMul' is a Gemm with a factor"),
    ],
)
def test_other_graphs_are_refused_by_node(
    folder: Path, how: Callable[[Any], None], text: str
) -> None:
    change(folder / "model.onnx", how)
    with pytest.raises(UnsupportedError, match=text):
        OnnxTensors.open(folder)


def _longer(graph: Any) -> None:
    graph.initializer[0].dims[0] += 1


def _huge(graph: Any) -> None:
    graph.initializer[0].dims[:] = [1 << 62, 1 << 62]


def _negative(graph: Any) -> None:
    graph.initializer[0].dims[0] = -5


def _lacking(graph: Any) -> None:
    del _product(graph).input[1:]


@pytest.mark.parametrize(
    "how, text",
    [(_longer, "its shape needs"), (_huge, "that none has"), (_negative, "that none has"),
     (_again, "is there twice"), (_lacking, "lacks inputs")],
)  # fmt: skip
def test_a_damaged_export(folder: Path, how: Callable[[Any], None], text: str) -> None:
    path = folder / "model.onnx"
    model = onnx.load(path)
    how(model.graph)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=text):
        OnnxTensors.open(folder)


def test_any_cut_is_one_error(folder: Path) -> None:
    data = (folder / "model.onnx").read_bytes()
    rng = np.random.default_rng(0)
    for size in (0, 1, 100, len(data) // 2, len(data) - 1):
        (folder / "model.onnx").write_bytes(data[:size])
        with pytest.raises(CheckpointError):
            OnnxTensors.open(folder)
    for _ in range(100):  # what is changed may be a number, which is no error
        broken = bytearray(data)
        for place in rng.integers(0, len(data), 40):
            broken[place] = rng.integers(256)
        (folder / "model.onnx").write_bytes(broken)
        try:
            found = OnnxTensors.open(folder)
        except MlccError:
            continue
        assert sum(4 * int(np.prod(shape)) for shape in found.shapes.values()) < 2 * len(data)


def test_names_that_are_no_text(folder: Path) -> None:
    path = folder / "model.onnx"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"embeddings.LayerNorm.bias", b"\xff" * 25))
    with pytest.raises(CheckpointError, match="is no ONNX model"):
        OnnxTensors.open(folder)


def test_an_export_of_another_model_is_named(tmp_path: Path) -> None:
    """The error names a tensor that config.json requires and the export lacks."""
    export("bert", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"encoder\.layer\.2\.attention"):
        compiled(tmp_path, "reference")


def test_other_exports_alone(folder: Path) -> None:
    (folder / "model.onnx").rename(folder / "model_quantized.onnx")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    from mlcc_compiler.checkpoint.formats.open import open_tensors

    with pytest.raises(CheckpointError, match=r"no model\.onnx"):
        open_tensors(folder, {})
