"""The split tensors of a model, refusals, and the part of each tensor that a rank reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mlcc.artifact.checks.consistency import check_consistency
from mlcc.artifact.folder import Artifact
from mlcc.cli import cli
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.artifact.rank_weights import RankWeights
from mlcc_compiler.calibration.activation_stats import activation_statistics
from mlcc_compiler.calibration.dataset import calibration_rows, resolve_calibration
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.options import RANDOM, Options, check_options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.quantization import dequantize, quantize, scheme
from mlcc_compiler.tensor_parallel.parts import COLUMNS, ROWS, Part, rank_tensors
from mlcc_targets import get_target
from tests.compiler.models.helpers.mixed import stored
from tests.runtime.tensor_parallel.split_models import checkpoint

WHOLE_GROUPS = {"intermediate_size": 128}
"""Half of which is whole groups of the recipe's rows."""


def planned(folder: Path, ranks: int = 2, **options: Any) -> Plan:
    options = {"quant": "f32", "context": 64, **options}
    made = Options(**options, ranks=ranks)
    return make_plan(Checkpoint.open(folder), get_target("cpu"), made)


@pytest.mark.parametrize(
    ("case", "ranks", "changes", "message"),
    [
        (
            "llama",
            3,
            {},
            "--tp 3 does not divide its 4 attention heads of 'llama'; use --tp 2 or 4",
        ),
        (
            "llama",
            3,
            {"num_attention_heads": 6, "hidden_size": 96, "head_dim": 16},
            "--tp 3 does not divide its 2 KV heads of 'llama'; use --tp 2 or 6",
        ),
        ("llama", 4, {"intermediate_size": 90}, "'model.layers.0.mlp', 90 wide inside"),
        (
            "gpt_oss",
            2,
            {},
            "'model.layers.0.mlp' has experts with biases, which are not split",
        ),
        ("olmo2", 2, {}, "architecture 'olmo2' has"),
        ("qwen3_next", 2, {}, "which is not split yet; leave out --tp"),
        ("deepseek_v2", 2, {}, "which is not split yet; leave out --tp"),
        ("gemma4", 2, {}, "which is not split yet; leave out --tp"),
        ("mamba2", 2, {}, "which is not split yet; leave out --tp"),
    ],
)
def test_what_is_not_split_is_refused_by_name(
    case: str, ranks: int, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    checkpoint(case, tmp_path / "model", **changes)
    with pytest.raises(UnsupportedError) as caught:
        planned(tmp_path / "model", ranks)
    assert message in caught.value.message


def test_groups_that_parts_would_cut_are_refused(tmp_path: Path) -> None:
    checkpoint("llama", tmp_path / "model", intermediate_size=96)
    with pytest.raises(UnsupportedError, match=r"rows of 96 of '.*down_proj.weight' are not 2"):
        planned(tmp_path / "model", quant="q8")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("vulkan", {}, "target 'vulkan' has neither; use --target cpu or cuda"),
        ("cpu", {"calibrate": "default"}, "--tp 2 and --calibrate: not built together"),
        ("cpu", {"static_library": True}, "--tp 2 and --static-library"),
    ],
)
def test_options_that_ranks_do_not_take(target: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_options(Options(**options, ranks=2), get_target(target))
    assert message in caught.value.message


def test_a_head_that_does_not_divide_is_whole(tmp_path: Path) -> None:
    checkpoint("llama", tmp_path / "model", vocab_size=131)
    plan = planned(tmp_path / "model")
    assert any("the head is whole on every rank" in note for note in plan.notes)
    assert "lm_head.weight" not in plan.traced.names


def test_ranks_round_for_the_sizes_of_whole_inputs(tmp_path: Path) -> None:
    """Calibration statistics equal those of one process: of a matrix with divided columns, each
    rank has its own."""
    checkpoint("llama", tmp_path / "model", vocab_size=132, hidden_size=128, **WHOLE_GROUPS)
    one, two = (
        resolve_calibration(planned(tmp_path / "model", ranks, quant="q4")) for ranks in (1, 2)
    )
    assert two.options.calibrate == RANDOM and two.split is not None
    whole, sizes = (
        activation_statistics(p, calibration_rows(p), lambda done, total: None) for p in (one, two)
    )
    ranks = [RankWeights(two, two.split, []).tensors(rank) for rank in (0, 1)]
    own = [rank.of_columns(sizes) for rank in ranks]
    assert whole.keys() == sizes.keys() == own[0].keys() and len(whole) == 14
    for name, expected in whole.items():
        divided = two.split.parts[name].axis == COLUMNS
        np.testing.assert_array_equal(sizes[name], expected)
        found = np.concatenate([each[name] for each in own]) if divided else own[1][name]
        np.testing.assert_array_equal(found, expected)
        assert all(o[name].shape == r.shapes[name][1:] for o, r in zip(own, ranks, strict=True))


def test_parts_are_rounded_for_them(tmp_path: Path) -> None:
    """Files with calibration equal those without, except for the rounding."""
    checkpoint("llama", tmp_path / "model", vocab_size=132, **WHOLE_GROUPS)
    plan, written = resolve_calibration(planned(tmp_path / "model", quant="q4", max_batch=8)), []
    assert plan.split is not None
    weights = RankWeights(plan, plan.split, stored(plan))
    for sizes in (
        activation_statistics(plan, calibration_rows(plan), lambda done, total: None),
        {},
    ):
        with ArtifactWriter(tmp_path / "out") as writer:
            weights.write(writer, iter, lambda done, total: None, sizes)
            written.append({path.name: path.read_bytes() for path in writer.folder.iterdir()})
    found, plain = written
    assert found.keys() == plain.keys() and len(found) == 3
    for name, data in found.items():
        assert len(data) == len(plain[name]) and (data != plain[name]) == name.startswith("rank")


def test_parts_of_all_ranks_are_the_whole(tiny: Path) -> None:
    plan = planned(tiny)
    assert plan.split is not None
    whole = plan.checkpoint.tensors
    ranks = [RankWeights(plan, plan.split, []).tensors(rank) for rank in (0, 1)]
    shapes = dict(zip(plan.traced.names, plan.traced.shapes, strict=True))
    for name, part in plan.split.parts.items():
        read = [each.read(plan.sources[name]) for each in ranks]
        assert read[0].shape == shapes[name]
        assert part.axis is not None
        table = "model.embed_tokens.weight" if name == "lm_head.weight" else name
        np.testing.assert_array_equal(np.concatenate(read, axis=part.axis), whole.read(table))


def test_rows_are_read_as_tensors_are(tiny: Path) -> None:
    base: Any = Checkpoint.open(tiny).tensors
    name = "model.layers.0.mlp.gate_proj.weight"
    for part in (Part(ROWS, (48, 80), (1, 2)), Part(ROWS), Part(COLUMNS), Part(None)):
        for rank in (0, 1):
            view: Any = rank_tensors(base, {name: part}, {}, rank, 2)
            found = view.read(name)
            rows = [view.read_rows(name, slice(at, at + 7)) for at in range(0, len(found), 7)]
            np.testing.assert_array_equal(np.concatenate(rows), found)
            assert view.shapes[name] == found.shape


@pytest.mark.parametrize(
    "name", ["int4_g32", "int4a_g32", "int8_row", "q4_k", "k4_g32", "mxfp4", "e4m3_g128", "nvfp4"]
)
def test_codes_of_a_part_stand_for_the_same(name: str) -> None:
    how = scheme(name)
    weight = np.random.default_rng(3).standard_normal((6, 2048)).astype(np.float32)
    q = quantize(weight, how)

    class CacheSpec:
        shapes, schemes = {"w": weight.shape}, {"w": name}

        def quantized(self, name: str) -> Any:
            return q

    for axis in (ROWS, COLUMNS):
        views = [rank_tensors(CacheSpec(), {"w": Part(axis)}, {}, rank, 2) for rank in (0, 1)]  # type: ignore[arg-type]
        parts = [view.quantized("w") for view in views]
        for part in parts:
            part.check("w")
        joined = np.concatenate([dequantize(part) for part in parts], axis=axis)
        np.testing.assert_array_equal(joined, dequantize(q))


def test_the_manifest_of_ranks_is_checked(tiny_artifact: Path) -> None:
    manifest = Artifact.open(tiny_artifact).manifest
    ranks = manifest.ranks
    assert ranks is not None and ranks.count == 2
    assert ranks.shard(1, ranks.shards[0][0]) == ranks.shards[1][0]
    shared = set(manifest.weights.shards) - set(ranks.shards[0])
    assert shared and all(ranks.shard(1, shard) == shard for shard in shared)
    for wrong, message in (
        (ranks.shards[:1], "1 ranks"),
        ((ranks.shards[0], ranks.shards[0]), "twice"),
        ((ranks.shards[0], ("nothing",)), "'nothing'"),
        ((("tokenizer.json",), ranks.shards[1]), "that hold no weights"),
        ((ranks.shards[0], ("tokenizer.json",)), "not as rank 0's"),
    ):
        with pytest.raises(ArtifactError, match=message):
            check_consistency(replace(manifest, ranks=replace(ranks, shards=wrong)))


def test_weights_are_used_again(tiny: Path, tiny_artifact: Path, tmp_path: Path) -> None:
    first = tiny_artifact
    runner = CliRunner()
    common = ["--quant", "q4", "--context", "128", "--max-batch", "4", "--max-step-tokens", "64"]
    common += ["--max-rows", "64", "--cpu", "host", "-q", "--reuse-weights", str(first)]
    out = tmp_path / "again"
    done = runner.invoke(cli, ["compile", str(tiny), "--tp", "2", "-o", str(out), *common])
    assert done.exit_code == 0, done.output
    manifest = Artifact.open(out).manifest
    assert manifest.ranks is not None
    for shard in manifest.ranks.shards[1]:
        assert (out / shard).samefile(first / shard)
    done = runner.invoke(cli, ["compile", str(tiny), "-o", str(tmp_path / "one"), *common])
    assert isinstance(done.exception, UnsupportedError)
    assert "stored otherwise (--tp 2" in done.exception.message
    shown = runner.invoke(cli, ["inspect", str(out)])
    assert "2 processes, each with 1 shard of its own" in shown.output
    assert "each of 2 ranks" in shown.output
