"""8-bit pages on real kernels, against the reference that rounds equally; and requests that migrate
between engines, with pages of either kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.eval.evaluation import read_rows
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.kv_transfer import export_request, import_request
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.demo.equality import compare, greedy_tokens, last_logits
from tests.helpers.demo_model import CONTEXT, DEMO

Opened8 = Callable[[str], Model]
TARGETS = ("cpu", "vulkan")
ERROR_BOUND, TIE_BOUND = 0.03, 0.06
"""How far logits may err from the reference's, and how close candidates of a tie must be. Weights
and sums are float32 on both sides, but a number that lies between two steps may round either way,
which moves a key or value by 1/127 of its head's largest."""


def folder8(shared: Path, target: str) -> Path:
    """The demo with 8-bit pages and all else in float32."""
    out = shared / f"kv-int8-{target}"
    with FileLock(shared / f"{out.name}.lock"):
        if not out.is_dir():
            options = Options(quant="f32", context=CONTEXT, kv="int8", max_batch=4)
            row = get_target(target, Choices(f16=False) if target == "vulkan" else Choices())
            compile_model(Checkpoint.open(DEMO / "model"), row, out, options, Progress())
    return out


@pytest.fixture(scope="module")
def opened8(compiled_demo: Any, request: pytest.FixtureRequest) -> Iterator[Opened8]:
    """target -> the model with 8-bit pages, opened in this process."""
    shared = compiled_demo("q8", "cpu").parent
    made: list[Model] = []

    def make(target: str) -> Model:
        if target == "vulkan":
            request.getfixturevalue("vulkan")
        made.append(open_model(folder8(shared, target), EngineArgs(kv="int8")))
        return made[-1]

    yield cache(make)
    for model in made:
        model.close()


def prompts_of(model: Model, count: int) -> list[list[int]]:
    rows = read_rows(DEMO / "eval.jsonl", ("task", "messages", "answer"))
    return [model.text.encode_chat(r["messages"]).tolist() for r in rows[:: len(rows) // count]]


@pytest.mark.parametrize(
    "target",
    [pytest.param(t, marks=pytest.mark.feature("int8-kv", t, "runs")) for t in TARGETS],
)
@pytest.mark.feature("int8-kv", "reference", "runs")
def test_answers_as_the_reference(opened8: Opened8, target: str, record_property: Any) -> None:
    model, reference = opened8(target), opened8("reference")
    prompts = prompts_of(model, 2)[:2]
    errors = [np.abs(last_logits(model, p) - last_logits(reference, p)).max() for p in prompts]
    record_property("max_abs_error", float(max(errors)))
    assert max(errors) < ERROR_BOUND
    a, b = (greedy_tokens(each, prompts, 8) for each in (model, reference))
    for answers in zip(prompts, a, b, strict=True):
        compare(reference, *answers, TIE_BOUND)


def test_8_bit_pages_are_smaller_and_reported(opened8: Opened8, compiled_demo: Any) -> None:
    """Half of float16's numbers, and a float32 for each head: 8 + 32 / 64 bits instead of 16."""
    folder = compiled_demo("q8", "cpu")
    (wide,) = Manifest.from_bytes((folder / MANIFEST_NAME).read_bytes()).caches
    small = open_folder(folder8(folder.parent, "cpu"))
    dim = wide.tensors[0].shape[-1]
    assert isinstance(dim, int)
    assert small.bytes_per_page / wide.bytes_per_page == (dim + 4) / (2 * dim)
    assert {t.dtype for t in small.tensors} == {"int8", "float32"}


def open_folder(folder: Path) -> Any:
    return Manifest.from_bytes((folder / MANIFEST_NAME).read_bytes()).caches[0]


def test_int8_asked_of_a_library_without_is_one_error(compiled_demo: Any) -> None:
    with pytest.raises(
        UnsupportedError, match=r"--kv int8 is requested, but the library was compiled for"
    ):
        open_model(compiled_demo("q8", "cpu"), EngineArgs(kv="int8"))


def collect(driver: Driver, events: list[Any], into: dict[str, list[int]]) -> None:
    for event in events:
        if isinstance(event, TextDelta) and event.request_id in into:
            into[event.request_id] += event.token_ids


MOVING = ["cpu", pytest.param("vulkan", marks=pytest.mark.feature("moving", "vulkan", "runs"))]


@pytest.mark.feature("moving", "cpu", "runs")
@pytest.mark.parametrize("target", MOVING)
def test_a_request_moves_half_way_and_says_the_same(
    opened8: Opened8, compiled_demo: Any, request: pytest.FixtureRequest, target: str
) -> None:
    """Migration between two executors, beside requests that stay, with the random state
    continued."""
    first = opened8(target)
    second = open_model(folder8(compiled_demo("q8", "cpu").parent, target))
    try:
        prompts = prompts_of(first, 3)[:3]
        all_params = [
            SamplingParams(temperature=0.9, seed=5 + i, max_tokens=12, ignore_eos=True)
            for i in range(3)
        ]
        alone, moved = Driver(first), [Driver(first), Driver(second)]
        want: dict[str, list[int]] = {"0": [], "1": [], "2": []}
        for name, prompt, params in zip(want, prompts, all_params, strict=True):
            alone.engine.add(Request(name, prompt, params))
        while alone.has_work:
            collect(alone, alone.step(), want)
        got: dict[str, list[int]] = {name: [] for name in want}
        moved[1].engine.add(Request("stays", prompts[1], all_params[1]))
        for name, prompt, params in zip(want, prompts, all_params, strict=True):
            moved[0].engine.add(Request(name, prompt, params))
        for name, steps in (("0", 2), ("1", 2)):
            for _ in range(steps):
                collect(moved[0], moved[0].step(), got)
                collect(moved[1], moved[1].step(), got)
            collect(moved[0], moved[0].drain(), got)
            collect(moved[1], moved[1].drain(), got)
            assert first.identity is not None
            data = export_request(moved[0].engine.migration, first.executor, first.identity, name)
            found = import_request(
                moved[1].engine.migration, second.executor, first.identity, data, None
            )
            assert found.computed
            moved[0].engine.cancel(name)
        for driver in moved:
            while driver.has_work:
                collect(driver, driver.step(), got)
        assert got == want
    finally:
        second.close()


def test_pages_of_another_library_are_refused(opened8: Opened8, compiled_demo: Any) -> None:
    first, second = opened8("cpu"), open_model(compiled_demo("q8", "cpu"))
    try:
        assert first.identity is not None
        assert second.identity is not None
        assert first.identity.tokenizer == second.identity.tokenizer
        driver = Driver(first)
        driver.engine.add(Request("a", [5, 6, 7], SamplingParams(max_tokens=9, ignore_eos=True)))
        driver.step()
        driver.drain()
        moves = driver.engine.migration
        data = export_request(moves, first.executor, first.identity, "a")
        with pytest.raises(InvalidRequestError, match="pages are laid out otherwise"):
            engine = second.new_engine()
            import_request(engine.migration, second.executor, second.identity, data)
        assert not engine.has_work
        driver.engine.cancel("a")
    finally:
        second.close()


def test_pages_that_are_not_there_are_refused(opened8: Opened8) -> None:
    executor = opened8("cpu").executor
    size = executor.page_bytes[0]
    kept = executor.read_pages(0, [3, 1, 2])
    assert len(kept) == 3 * size
    executor.write_pages(0, [1, 3], bytes(2 * size))
    assert executor.read_pages(0, [3]) == bytes(size)
    for group, ids, data in ((1, [0], b""), (0, [1 << 20], bytes(size)), (0, [0], b"x")):
        with pytest.raises(AssertionError):
            executor.write_pages(group, ids, data)
    executor.write_pages(0, [3, 1, 2], kept)
    assert executor.read_pages(0, [1, 2, 3]) != bytes(3 * size)
