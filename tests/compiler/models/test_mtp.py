"""Multi-token-prediction layers: logits against torch, of prompts and of drafts from own states."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from mlcc.artifact.folder import Artifact
from mlcc.commands.run import run_command
from mlcc.device.device import DeviceHandle
from mlcc.engine import Engine, Request, SamplingParams
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, int32
from mlcc.engine.migration import Identity
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine.spec_decode.mtp import MtpLayer
from mlcc.engine_args import EngineArgs
from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc.loader import open_executor, open_model
from mlcc.model.kv_transfer import export_request, import_request
from mlcc.model.speculation import Speculation
from mlcc.model_cache.resolve import resolve
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.cli import compile_command
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir.lora import LoraConfig
from mlcc_compiler.options import Options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.quantization.recipes import DRAFT_HEAD
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.compiler.models.helpers.mixed import capacity_of, native, reference
from tests.compiler.models.helpers.mtp import (
    EagleOracle,
    MtpOracle,
    make_eagle_checkpoint,
    make_mtp_checkpoint,
)
from tests.compiler.models.test_engine_on_native import check_greedy
from tests.helpers import shared
from tests.runtime.engine.helpers.drafting import Eager
from tests.runtime.engine.helpers.drive import Driver, Got

BOUND = 1e-4
NO_TOKENS = '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'
DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model"
TOKENS = [5, 17, 99, 3, 42, 7, 88, 120, 64, 9, 31, 77, 18, 56, 101, 23, 11, 45, 90, 6]
CASES = [
    "llama", "qwen2-window", "qwen3", "qwen3_next-experts", "qwen3_5", "glm4_moe", "deepseek_v3",
    "mimo", "ernie4_5_moe", "nemotron_h-experts",
]  # fmt: skip
OF_OTHERS = ["glm4_moe_lite", "qwen3_5_moe"]
"""With --long only: a family's layer with another's attention."""


def mtp_plan(folder: Path, **options: Any) -> Plan:
    given = Options(quant="f32", context=128, max_batch=8, mtp=True, **options)
    return make_plan(Checkpoint.open(folder), get_target("cpu"), given)


@pytest.fixture(
    scope="module", params=[*CASES, *(pytest.param(c, marks=pytest.mark.long) for c in OF_OTHERS)]
)
def model(request: Any, tmp_path_factory: Any) -> tuple[MtpOracle, Plan, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return make_mtp_checkpoint(request.param, folder), mtp_plan(folder), folder


@pytest.mark.feature("mtp", "cpu", "runs")
def test_native_equals_torch(model: tuple[MtpOracle, Plan, Path]) -> None:
    oracle, plan, folder = model
    executor = native(plan, folder, capacity_of(plan))
    assert worst_error(executor, oracle) < BOUND


@pytest.mark.feature("mtp", "reference", "runs")
def test_reference_equals_torch(model: tuple[MtpOracle, Plan, Path]) -> None:
    oracle, plan, _ = model
    assert worst_error(reference(plan, capacity_of(plan)), oracle) < 2e-5


@pytest.mark.usefixtures("vulkan")
@pytest.mark.feature("mtp", "vulkan", "runs")
@pytest.mark.parametrize(
    "case",
    ["llama", *(pytest.param(c, marks=pytest.mark.long) for c in [*CASES[1:], *OF_OTHERS])],
)
def test_vulkan_equals_torch(case: str, tmp_path: Path) -> None:
    oracle = make_mtp_checkpoint(case, tmp_path)
    assert vulkan_error(oracle, mtp_plan(tmp_path), tmp_path) < BOUND


def vulkan_error(oracle: MtpOracle, plan: Plan, folder: Path) -> float:
    plan = replace(plan, target=get_target("vulkan", Choices(f16=False)))
    executor = native(plan, folder, capacity_of(plan), DeviceHandle("webgpu"))
    try:
        return worst_error(executor, oracle)
    finally:
        executor.close()


def worst_error(executor: Any, oracle: MtpOracle) -> float:
    """A prompt in two chunks, each followed by the layer's step, then two drafts."""
    steps, count, first = ManualSteps(executor.capacity), len(TOKENS), 12
    errors, hidden = [], torch.empty(0)
    for begin, end in ((0, first), (first, count - 1)):
        found = executor.logits(steps.step({0: TOKENS[begin:end]}, every_row=True))
        logits, hidden = oracle.main(TOKENS[:end])
        errors.append(difference(found, logits[begin:]))
        found = executor.logits(mtp_step(steps, begin, TOKENS[begin + 1 : end + 1], 0))
        logits, states = oracle.mtp(TOKENS[1 : end + 1], hidden)
        errors.append(difference(found, logits[begin:]))
    assert logits[logits > -1e29].std() > 0.5
    known = [*TOKENS[1:]]
    for draft in (33, 71):  # each from the layer's own last state, where none was kept: zeros
        last = found.shape[0] - 1
        found = executor.logits(mtp_step(steps, len(known), [draft], last))
        hidden, known = torch.cat([hidden, states[-1:]]), [*known, draft]
        logits, states = oracle.mtp(known, hidden)
        errors.append(difference(found, logits[-1:]))
    found = executor.logits(mtp_step(steps, len(known), [8], -1))
    hidden = torch.cat([hidden, torch.zeros_like(hidden[:1])])
    errors.append(difference(found, oracle.mtp([*known, 8], hidden)[0][-1:]))
    return max(errors)


def difference(found: Any, expected: np.ndarray[Any, Any]) -> float:
    """Of the logits, where tokens that a head does not know are equally unlikely."""
    values, unknown = np.asarray(found, np.float64), expected <= -1e29
    assert (values[unknown] <= -0.99e30).all()
    return float(np.abs(np.where(unknown, 0, values - expected)).max())


def mtp_step(steps: ManualSteps, position: int, tokens: list[int], hidden: int) -> Batch:
    """A step of the layer for sequence 0, whose states are those from `hidden` on."""
    rows = range(hidden, hidden + len(tokens)) if hidden >= 0 else [-1] * len(tokens)
    return steps.mtp_step(tokens, position, int32(rows))


@pytest.fixture(scope="module")
def eagle(tmp_path_factory: Any) -> tuple[EagleOracle, Plan, Path]:
    """A model and an EAGLE-3 head, with KV heads of its own and a part of the vocabulary; the
    model's own layer is left out."""
    folder = tmp_path_factory.mktemp("eagle")
    oracle = make_eagle_checkpoint(folder / "model", folder / "head")
    path = folder / "model" / "model.safetensors"
    own = {"mtp.fc.weight": torch.zeros(64, 128), "mtp.layers.0.x.weight": torch.zeros(3)}
    save_file({**load_file(path), **own}, path, {"format": "pt"})
    given = Options(quant="f32", context=128, max_batch=8, draft_head=folder / "head")
    plan = make_plan(Checkpoint.open(folder / "model"), get_target("cpu"), given)
    return oracle, plan, folder


@pytest.mark.long
@pytest.mark.usefixtures("vulkan")
def test_an_eagle_head_on_vulkan(eagle: tuple[EagleOracle, Plan, Path]) -> None:
    oracle, plan, folder = eagle
    assert vulkan_error(oracle, plan, folder) < BOUND


def test_an_eagle_head_equals_torch(eagle: tuple[EagleOracle, Plan, Path]) -> None:
    oracle, plan, folder = eagle
    assert len(plan.caches.groups) == 2
    assert worst_error(reference(plan, capacity_of(plan)), oracle) < 2e-5
    executor = native(plan, folder, capacity_of(plan))
    assert worst_error(executor, oracle) < BOUND


@pytest.mark.parametrize("case", ["llama", "qwen3"])  # tied, and with a head of its own
def test_drafts_read_a_copy_of_the_head(case: str, tmp_path: Path) -> None:
    """The graph is right, of whose weights `reference` reads floats."""
    oracle = make_mtp_checkpoint(case, tmp_path)
    plan = mtp_plan(tmp_path, rules=((DRAFT_HEAD, "int8_g32"),))
    assert plan.schemes[DRAFT_HEAD] == "int8_g32"
    assert worst_error(reference(plan, capacity_of(plan)), oracle) < 2e-5


def test_the_copy_alone_is_rounded(tmp_path: Path) -> None:
    oracle = make_mtp_checkpoint("qwen3", tmp_path)
    plan = mtp_plan(tmp_path, rules=((DRAFT_HEAD, "int8_g32"),))
    executor, steps = native(plan, tmp_path, capacity_of(plan)), ManualSteps(capacity_of(plan))
    found = executor.logits(steps.step({0: TOKENS[:-1]}, every_row=True))
    logits, hidden = oracle.main(TOKENS[:-1])
    assert difference(found, logits) < BOUND
    found = executor.logits(mtp_step(steps, 0, TOKENS[1:], 0))
    assert 10 * BOUND < difference(found, oracle.mtp(TOKENS[1:], hidden)[0]) < 0.1
    executor.close()


def test_heads_of_drafts_by_recipe(tmp_path: Path) -> None:
    """A copy where linears have fewer bits than the head; it takes their scheme."""
    make_mtp_checkpoint("qwen3", tmp_path)
    recipes = {"q4": "t4_g32", "q3": "t3_g32", "q8": "", "f16": "", "q4_g32": "int4_g32"}
    recipes |= {"keep": "t4_g32"}
    found = {}
    for name in recipes:
        given = Options(quant=name, context=128, max_batch=8, mtp=True)
        plan = make_plan(Checkpoint.open(tmp_path), get_target("cpu"), given)
        found[name] = plan.schemes.get(DRAFT_HEAD, "")
        assert DRAFT_HEAD not in plan.sources or plan.sources[DRAFT_HEAD] == "lm_head.weight"
    assert found == recipes


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("gpt_oss", {}),
        ("gemma3", {}),
        pytest.param("qwen3", {"use_sliding_window": True, "sliding_window": 8,
                               "max_window_layers": 3}, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_an_eagle_head_for_a_model_with_windows(
    case: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """The head's keys are kept for all tokens, those of windows are left alone."""
    oracle = make_eagle_checkpoint(tmp_path / "model", tmp_path / "head", case=case, **changes)
    given = Options(quant="f32", context=128, max_batch=8, draft_head=tmp_path / "head")
    plan = make_plan(Checkpoint.open(tmp_path / "model"), get_target("cpu"), given)
    assert any(group.window for group in capacity_of(plan).groups)
    assert worst_error(reference(plan, capacity_of(plan)), oracle) < 2e-5


def test_another_step_leaves_the_layer_alone(model: tuple[MtpOracle, Plan, Path]) -> None:
    """Only steps whose header says so run the layer."""
    _, plan, _ = model
    writer = BatchWriter(capacity_of(plan).layout)
    assert not writer.finish().mtp
    assert BatchWriter(capacity_of(plan).layout, mtp=True).finish().mtp


@pytest.mark.parametrize(
    "case",
    [
        "llama",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("qwen2-window", "qwen3_5")),
    ],
)
def test_drafted_answers_equal_transformers(case: str, tmp_path: Path) -> None:
    """And sampled ones those without drafts, also after preemption and from another engine's pages.
    Four requests at once, whose layer drafts three tokens in each step, mostly wrong ones; from a
    model that takes adapters, from one with windows, and from one with states."""
    oracle = make_mtp_checkpoint(case, tmp_path)
    check_drafted(oracle, tmp_path, tmp_path / "out", adapters=LoraConfig(4, 2), mtp=True)


@pytest.mark.long
@pytest.mark.parametrize("case", ["gpt_oss", "gemma3"])
def test_answers_that_a_head_drafts_beside_windows(case: str, tmp_path: Path) -> None:
    model, head = tmp_path / "model", tmp_path / "head"
    oracle = make_eagle_checkpoint(model, head, case=case)
    check_drafted(oracle, model, tmp_path / "out", draft_head=head)


def check_drafted(oracle: MtpOracle, folder: Path, out: Path, **options: Any) -> None:
    """Compile a checkpoint, and compare drafted answers with transformers' greedy ones."""
    (folder / "tokenizer.json").write_text(NO_TOKENS)
    given = Options(
        quant="f32", context=128, max_batch=4, max_step_tokens=16, max_rows=16, **options
    )
    checkpoint, target = Checkpoint.open(folder), get_target("cpu", Choices(cpu="host"))
    out = compile_model(checkpoint, target, out, given, Progress())
    executor = open_executor(Artifact.open(out))
    rng = np.random.default_rng(5)
    prompts = [rng.integers(3, 131, n).tolist() for n in (40, 7, 23, 2)]
    answers = drafted(executor, prompts, SamplingParams(temperature=0.0, max_tokens=50))
    ties = sum(check_greedy(oracle.model, *pair) for pair in zip(prompts, answers, strict=True))
    assert ties <= 1
    sampled = SamplingParams(temperature=0.9, top_p=0.95, max_tokens=50, seed=3)
    expected = plain(executor, prompts, sampled)
    assert drafted(executor, prompts, sampled) == expected
    assert preempted(executor, prompts, sampled) == expected
    other = open_executor(Artifact.open(out))
    assert handed_over(executor, other, prompts, sampled) == expected
    executor.close()
    other.close()


def drafting(executor: Any, capacity: Capacity) -> Driver:
    """Its layer drafts three tokens in each step."""
    layer = MtpLayer(capacity)
    engine = Engine(capacity, speculator=Eager(layer.open, 3), draft=layer)
    driver = Driver(engine, executor)
    driver.draft = executor
    return driver


def drafted(executor: Any, prompts: list[list[int]], wish: SamplingParams) -> list[list[int]]:
    driver = drafting(executor, executor.capacity)
    answers, stats = answers_of(driver, prompts, wish), driver.engine.stats()
    assert stats.drafted_tokens > 100 and 0 < stats.accepted_tokens < stats.drafted_tokens
    return answers


def preempted(executor: Any, prompts: list[list[int]], wish: SamplingParams) -> list[list[int]]:
    """Answers where pages run out, so that sequences begin again while others draft."""
    capacity = executor.capacity
    pages = max(group.most_pages(100, 16) for group in capacity.groups)
    pools = tuple(min(pool, pages + 1) for pool in capacity.pools)
    driver = drafting(executor, replace(capacity, pools=pools))
    answers, stats = answers_of(driver, prompts, wish), driver.engine.stats()
    assert stats.preemptions > 0 and stats.drafted_tokens > 100
    return answers


def handed_over(
    executor: Any, other: Any, prompts: list[list[int]], wish: SamplingParams
) -> list[list[int]]:
    """Answers whose prompts one engine computes, as in disaggregated prefill, and which another
    continues: its layer lacks the states, and the keys came with the pages."""
    here, there = drafting(executor, executor.capacity), drafting(other, other.capacity)
    identity = Identity("layout", "model", "tokenizer")
    for i, prompt in enumerate(prompts):
        here.add(Request(str(i), prompt, wish))
        while not here.got[str(i)].tokens:
            here.step()
        data = export_request(here.engine.migration, executor, identity, str(i))
        found = import_request(there.engine.migration, other, identity, data)
        assert found.computed, "the pages came along"
        here.cancel(str(i))
        there.got[str(i)] = Got(tokens=[*found.output_ids])
        there.step()  # others draft while the next one arrives
    answers, stats = there.run(), there.engine.stats()
    assert stats.drafted_tokens > 100 and stats.preemptions == 0
    return [answers[str(i)].tokens for i in range(len(prompts))]


def plain(executor: Any, prompts: list[list[int]], wish: SamplingParams) -> list[list[int]]:
    return answers_of(Driver(Engine(executor.capacity), executor), prompts, wish)


def answers_of(driver: Driver, prompts: list[list[int]], wish: SamplingParams) -> list[list[int]]:
    for i, prompt in enumerate(prompts):
        driver.add(Request(str(i), prompt, wish))
    answers = driver.run()
    return [answers[str(i)].tokens for i in range(len(prompts))]


def test_a_checkpoint_is_compiled_with_the_layer_that_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo model has none, which the compile that `--speculate mtp` starts says."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = CliRunner().invoke(run_command, [str(DEMO), "hi", "--speculate", "mtp:2"])
    assert isinstance(found.exception, MlccError), found.output
    assert "has no multi-token-prediction layer (mtp.fc.weight)" in found.exception.message


def test_a_head_is_compiled_for_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `mlcc compile HEAD --for MODEL`, and where `--draft` names it beside a checkpoint."""
    model, head, out = tmp_path / "model", tmp_path / "head", tmp_path / "out"
    make_eagle_checkpoint(model, head)
    (model / "tokenizer.json").write_text(NO_TOKENS)
    words = [str(head), "--quant", "f32", "--context", "128", "--cpu", "host", "-o", str(out)]
    alone = CliRunner().invoke(compile_command, words).exception
    assert isinstance(alone, UnsupportedError) and "add --for CHECKPOINT" in alone.message
    found = CliRunner().invoke(compile_command, [*words, "--for", str(model)])
    assert found.exit_code == 0, found.output
    with pytest.raises(UnsupportedError, match=f"--draft {head} is an EAGLE-3 head"):
        resolve(EngineArgs(str(out), draft=head))
    monkeypatch.setenv("XDG_CACHE_HOME", shared.own_cache(tmp_path))
    args = EngineArgs(str(model), quant="f32", context=128, speculate="draft:2", draft=head)
    for opened, longest in (
        (open_model(out, EngineArgs(draft=head)), 3),
        (open_model(resolve(args), args), 2),
    ):
        assert opened.speculation == Speculation("mtp", longest)
        assert opened.drafts_itself and opened.draft is None
        opened.close()


def test_refusals(tmp_path: Path) -> None:
    make_checkpoint("llama", tmp_path / "plain")
    with pytest.raises(UnsupportedError, match="has no multi-token-prediction layer"):
        mtp_plan(tmp_path / "plain")
    make_checkpoint("mistral", tmp_path / "mistral")
    with pytest.raises(
        UnsupportedError, match="multi-token-prediction layer of 'mistral' is not supported"
    ):
        mtp_plan(tmp_path / "mistral")
    make_checkpoint("minimax_m2", tmp_path / "minimax")
    with pytest.raises(UnsupportedError, match="MiniMax M2 is published without the layers"):
        mtp_plan(tmp_path / "minimax")
    make_checkpoint("kimi_linear", tmp_path / "kimi")
    with pytest.raises(UnsupportedError, match="Kimi Linear is published without such a layer"):
        mtp_plan(tmp_path / "kimi")
    make_mtp_checkpoint("nemotron_h-experts", tmp_path / "nemotron")
    path = tmp_path / "nemotron" / "config.json"
    config = json.loads(path.read_text()) | {"mtp_layers_block_type": ["mamba", "moe"]}
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="'mtp_layers_block_type' must be layers without"):
        mtp_plan(tmp_path / "nemotron")
    make_mtp_checkpoint("llama", tmp_path / "llama")
    with pytest.raises(UnsupportedError, match="leave out one of them"):
        mtp_plan(tmp_path / "llama", draft_head=tmp_path)
    with pytest.raises(UnsupportedError, match="--tp 2 and --mtp"):
        mtp_plan(tmp_path / "llama", ranks=2, calibrate="none")
