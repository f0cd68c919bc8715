"""The memory plan of a tab, as JSON, from the manifest alone, before weights are fetched."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import EncoderInfo, FileEntry
from mlcc.embedded.entry import check, plan, shrink
from mlcc.embedded.planning import TAB_CACHE_BYTES
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.tables import CacheGroup
from tests.helpers.toy.toy_model import TEMPLATE
from tests.helpers.toy.toy_tab import ADAPTER, JsLetters, toy_manifest

PAGE = 4096
"""Bytes of a page of the toy, which has one layer."""


def compiled(
    groups: list[CacheGroup], pools: list[int], context: int = 512, chunk: int = 64
) -> Capacity:
    """A capacity for eight sequences at once."""
    return Capacity.of(
        groups, pools, vocab_size=96, context=context, max_batch=8, max_step_tokens=chunk
    )


PAGED = CacheGroup("paged", 16)
SIZES = ("max_batch", "max_step_tokens", "context")
TOY = toy_manifest(compiled([PAGED], [256]))


def planned(manifest: Manifest | None = None, **fields: Any) -> dict[str, Any]:
    options = {name: fields.pop(name, None) for name in SIZES}
    adapter = {**ADAPTER, **fields}
    data = (manifest or TOY).to_bytes()
    return dict(json.loads(plan(data, json.dumps(adapter), json.dumps(options))))


def error(made: dict[str, Any]) -> dict[str, Any]:
    assert set(made) == {"error"}
    assert set(made["error"]) == {"type", "message", "code", "param", "http_status"}
    return dict(made["error"])


def large() -> Manifest:
    """A model whose pages could fill 8 GiB: 128 tokens in 4 MiB, in a context of 32k."""
    capacity = compiled([CacheGroup("paged", 128)], [2048], 32768, 256)
    return toy_manifest(capacity, elements=64 * 128)


def test_a_small_model_gets_what_four_chats_need() -> None:
    made = planned()
    assert made["capacity"] == {
        "vocab_size": 96, "context": 512, "pools": [128], "max_batch": 4, "max_step_tokens": 64,
        "max_rows": 8,
    }  # fmt: skip
    assert made["step_words"] == TOY.layout.words
    assert made["adjust_words"] == AdjustLayout.of(TOY.layout, 96).words
    assert made["interface"] == TOY.interface
    assert made["functions"] == ["forward", "sample", "copy_pages"]
    assert made["caches"] == [{"dtype": "float16", "shape": [128, 2, 1, 16, 64]}]
    assert made["weights"] == [{"name": "w", "dtype": "float32", "shape": [2, 5], "shard": "w.st"}]
    assert made["bytes"] == {"weights": 40, "caches": 128 * PAGE, "workspace": 1000, "adapters": 0}
    assert [e["path"] for e in made["text"]] == ["tokenizer.json", "chat_template.jinja"]
    assert [e["path"] for e in made["shards"]] == ["w.st"]
    assert set(made["library"]) == {"path", "bytes", "sha256", "chunks"}
    assert (made["model"], made["abi"], made["f16"], made["notes"]) == (
        "toy", toy_manifest().abi, True, [],
    )  # fmt: skip


def test_the_page_may_choose_the_sizes() -> None:
    capacity = planned(max_batch=2, context=64)["capacity"]
    assert (capacity["max_batch"], capacity["context"], capacity["pools"]) == (2, 64, [8])
    assert "1 .. 8" in error(planned(max_batch=9))["message"]
    assert planned(max_step_tokens=16)["capacity"]["max_step_tokens"] == 16
    assert "1 .. 64" in error(planned(max_step_tokens=65))["message"]


def test_an_encoder_is_planned_for_as_many_texts_as_it_was_compiled_for() -> None:
    encoder = EncoderInfo(
        task="embed", pooling="mean", width=8, normalize=True, prompts={}, activation="none"
    )
    small = toy_manifest(compiled([PAGED], [8], context=64))
    made = planned(replace(small, functions=("forward",), encoder=encoder))
    assert (made["row_width"], made["functions"]) == (8, ["forward"])
    assert made["capacity"]["max_batch"] == 8
    assert planned()["row_width"] is None


def test_a_large_context_gets_a_budget_of_pages_and_says_so() -> None:
    made = planned(large(), tensor_bytes=4 << 30)
    assert made["bytes"]["caches"] == TAB_CACHE_BYTES
    assert made["capacity"]["context"] == 32768
    assert made["notes"] == [
        "a tab takes 1024 MiB for caches: room for 32768 tokens in all, so some requests wait for "
        "others"
    ]


def test_one_tensors_bound_and_known_memory_shrink_the_pages() -> None:
    assert planned(tensor_bytes=64 * PAGE)["capacity"]["pools"] == [64]
    known = planned(large(), tensor_bytes=4 << 30, memory_bytes=(512 << 20) + 1040)
    assert known["bytes"]["caches"] == 512 << 20
    assert known["notes"][0].startswith("the page gives it 536.87 MB: the context is 16384")
    assert not planned(memory_bytes=1 << 20)["notes"]
    assert error(planned(memory_bytes=1 << 16))["type"] == "CapacityError"


def test_f16_is_asked_of_the_adapter_only_if_the_library_needs_it() -> None:
    refusal = error(planned(f16=False))
    assert refusal["type"] == "DeviceError" and "--no-f16" in refusal["message"]
    both = toy_manifest()
    entry = FileEntry(path="mlcc.f32.json", bytes=1, sha256="0" * 64, chunks=("0" * 64,))
    both = replace(both, files=(*both.files, entry), alternatives=("mlcc.f32.json",))
    assert planned(both, f16=False) == {"instead": ["mlcc.f32.json"]}
    assert planned(both)["f16"] is True
    plain = replace(both, target=replace(both.target, options={"f16": False}))
    assert planned(plain, f16=False)["f16"] is False


def test_packed_products_are_asked_of_the_browser_only_if_the_library_has_them() -> None:
    packed = replace(TOY, target=replace(TOY.target, options={"packed_dot": True}))
    assert "capacity" in planned(packed)
    refusal = error(planned(packed, packed_dot=False))
    assert refusal["code"] == "no_packed_dot" and "--activations 8" in refusal["message"]
    assert "capacity" in planned(packed_dot=False)


def test_matrices_are_asked_of_the_gpu_only_if_the_library_has_them() -> None:
    options = {**TOY.target.options, "subgroup_matrix": 8}
    matrices = replace(TOY, target=replace(TOY.target, options=options))
    assert planned(matrices, subgroup_matrices=[16, 8])["subgroup_matrix"] == 8
    refusal = error(planned(matrices, subgroup_matrices=[16]))
    assert refusal["code"] == "no_subgroup_matrix"
    assert "8 x 8" in refusal["message"] and "--subgroup-matrices" in refusal["message"]
    assert planned()["subgroup_matrix"] == 0


def test_a_model_for_something_else_and_a_weight_too_large() -> None:
    foreign = toy_manifest()
    foreign = replace(foreign, library=replace(foreign.library, kind="so"))
    assert "--target webgpu" in error(planned(foreign))["message"]
    refusal = error(planned(tensor_bytes=39))
    assert (refusal["type"], refusal["http_status"]) == ("CapacityError", 503)


def test_a_model_of_another_abi_is_refused_before_it_is_fetched() -> None:
    refusal = error(planned(toy_manifest(abi="a" * 16)))
    assert (refusal["type"], refusal["code"]) == ("ArtifactError", "wrong_abi")


def test_texts_are_checked_before_weights_are_fetched() -> None:
    data, config = toy_manifest().to_bytes(), "generation_config.json"
    texts = {"chat_template.jinja": TEMPLATE}
    assert json.loads(check(data, texts, JsLetters())) == {"notes": []}
    entry = FileEntry(path=config, bytes=1, sha256="0" * 64, chunks=("0" * 64,))
    broken = toy_manifest(files=(*toy_manifest().files, entry)).to_bytes()
    refusal = error(json.loads(check(broken, {**texts, config: "{"}, JsLetters())))
    assert refusal["type"] == "ArtifactError" and config in refusal["message"]


def test_a_damaged_manifest_is_an_answer_not_an_exception() -> None:
    made = json.loads(plan(toy_manifest().to_bytes()[:-9], json.dumps(ADAPTER), "{}"))
    assert error(made)["type"] == "ArtifactError"


def test_shrinking_halves_the_pages_down_to_one_short_chat() -> None:
    data = TOY.to_bytes()
    made = planned()
    sizes, contexts = [], []
    while "error" not in (smaller := json.loads(shrink(data, json.dumps(made)))):
        made = smaller
        (pages,) = made["capacity"]["pools"]
        assert made["caches"][0]["shape"][0] == pages and made["bytes"]["caches"] == pages * PAGE
        sizes.append(pages)
        contexts.append(made["capacity"]["context"])
    assert (sizes, contexts) == ([64, 32, 16], [512, 512, 256])
    assert len(made["notes"]) == 3 and "256 tokens instead of 512" in made["notes"][-1]
    assert smaller["error"]["type"] == "CapacityError"


def test_a_context_that_the_page_chose_is_not_cut() -> None:
    data, made = TOY.to_bytes(), planned(context=256)
    made = json.loads(shrink(data, json.dumps(made)))
    while "error" not in made:
        assert made["capacity"]["context"] == 256
        made = json.loads(shrink(data, json.dumps(made)))
    assert made["error"]["type"] == "CapacityError"


def test_each_group_has_its_tensors_and_shrinks_to_what_one_chat_needs() -> None:
    groups = [PAGED, CacheGroup("window", 16, 32), CacheGroup("state")]
    manifest = toy_manifest(compiled(groups, [256, 256, 256]))
    made = planned(manifest)
    assert [cache["shape"] for cache in made["caches"]] == [
        [128, 2, 1, 16, 64], [28, 2, 1, 16, 64], [4, 2, 1, 1, 64],
    ]  # fmt: skip
    assert made["bytes"]["caches"] == (128 + 28) * PAGE + 4 * PAGE // 16
    pools = [made["capacity"]["pools"]]
    while "error" not in (smaller := json.loads(shrink(manifest.to_bytes(), json.dumps(made)))):
        made = smaller
        pools.append(made["capacity"]["pools"])
        assert [cache["shape"][0] for cache in made["caches"]] == pools[-1]
    assert pools == [[128, 28, 4], [64, 14, 2], [32, 7, 1], [16, 3, 1]]
    assert made["capacity"]["context"] == 256
