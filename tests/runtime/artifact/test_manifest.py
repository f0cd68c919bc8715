"""mlcc.json: sealed, strict, and equal for equal input."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from mlcc.artifact.checks.consistency import check_relative
from mlcc.artifact.kv_format import check_kv, kv_identity
from mlcc.artifact.manifest import Manifest, abi_hash
from mlcc.artifact.manifest import _seal as seal
from mlcc.artifact.schema import (
    EmbeddingsInfo,
    FileEntry,
    TensorSpec,
    VisionInfo,
    WeightsInfo,
    WeightSpec,
)
from mlcc.errors import ArtifactError, UnsupportedError
from tests.runtime.artifact.small_artifact import manifest

HASH = "0" * 64
LIBRARY = FileEntry(path="model.so", bytes=3, sha256=HASH, chunks=(HASH,))
SMALL = replace(manifest(WeightsInfo(tensors=())), files=(LIBRARY,))


def sealed(change: Any) -> bytes:
    """A manifest changed as JSON, with a seal that fits."""
    plain = json.loads(SMALL.to_bytes())
    plain.pop("checksum")
    change(plain)
    return seal(json.dumps(plain, indent=1, ensure_ascii=False).encode())


def refused(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        Manifest.from_bytes(data)
    assert "\n" not in caught.value.message


def test_it_comes_back_as_it_was() -> None:
    data = SMALL.to_bytes()
    assert Manifest.from_bytes(data) == SMALL
    assert Manifest.from_bytes(data).to_bytes() == data
    assert sealed(lambda plain: None) == data
    assert json.loads(data)["model"]["config"] == {"rms_norm_eps": 1e-05, "name": "é"}


@pytest.mark.parametrize("bit", [1, 4, 32, 128])
def test_every_flipped_bit_is_seen(bit: int) -> None:
    data = SMALL.to_bytes()
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        with pytest.raises(ArtifactError):
            Manifest.from_bytes(damaged)


@pytest.mark.parametrize("cut", [0, 1, 2, 70, 200])
def test_a_truncated_manifest(cut: int) -> None:
    refused(SMALL.to_bytes()[: -cut - 1], "damaged or was edited by hand; compile the model again")


def test_an_unknown_field() -> None:
    refused(sealed(lambda p: p["model"].update(extra={})), r"mlcc\.json: model\.extra: unknown")
    refused(sealed(lambda p: p.update(extra={})), "extra: unknown field")


def test_a_missing_field() -> None:
    refused(sealed(lambda p: p["limits"].pop("context")), r"limits\.context: missing field")


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("limits", "context", "128", r"limits\.context: expected an integer, got '128'"),
        ("limits", "context", True, r"limits\.context: expected an integer, got True"),
        ("limits", "max_rows", 1.5, r"limits\.max_rows: expected an integer, got 1\.5"),
        ("model", "eos_token_ids", [1, "x"], r"model\.eos_token_ids\[1\]: expected an integer"),
        ("model", "special_tokens", {"a": 1}, r"model\.special_tokens\.a: expected a string"),
        ("weights", "tensors", [{"name": "x"}], r"weights\.tensors\[0\]\.dtype: missing field"),
        ("weights", "tensors", None, r"weights\.tensors: expected a list, got None"),
    ],
)
def test_mistyped_fields(section: str, key: str, value: Any, message: str) -> None:
    refused(sealed(lambda p: p[section].__setitem__(key, value)), message)


def test_fields_of_caches() -> None:
    def window(plain: dict[str, Any]) -> None:
        plain["caches"][0]["window"] = 1.5

    message = r"caches\[0\]\.window: expected an integer or null, got 1\.5"
    refused(sealed(window), message)


def test_a_newer_schema_is_refused_with_its_maker() -> None:
    def newer(plain: dict[str, Any]) -> None:
        plain["schema_version"] = 5
        plain["tools"]["mlcc"] = "4.0"
        plain["unheard_of"] = 1

    refused(sealed(newer), r"made by mlcc 4\.0 \(schema 5\).*reads schema 3 to 4: .*--upgrade mlcc")


def test_a_model_of_the_first_kernel_interface_is_refused_in_one_line() -> None:
    def older(plain: dict[str, Any]) -> None:
        plain["schema_version"] = 2
        plain["kv"] = plain.pop("caches")

    refused(sealed(older), r"made by mlcc 0\.1\.0 \(schema 2\).*compile the model again with")


@pytest.mark.parametrize("version", [0, "1", None])
def test_an_older_or_absent_schema_is_refused(version: Any) -> None:
    data = sealed(lambda plain: plain.__setitem__("schema_version", version))
    refused(data, "compile the model again with `mlcc compile`")


def test_activations_come_back_and_schema_3_had_float32() -> None:
    def older(plain: dict[str, Any]) -> None:
        assert plain.pop("activation_dtype") == "float32"
        plain["schema_version"] = 3

    assert Manifest.from_bytes(sealed(older)).activation_dtype == "float32"


@pytest.mark.parametrize("dtype", ["float16", "float64", ""])
def test_activations_that_nothing_computes_are_refused(dtype: str) -> None:
    data = sealed(lambda plain: plain.__setitem__("activation_dtype", dtype))
    refused(data, f"activations in '{dtype}', which nothing here computes; compile the model again")


def test_not_json_under_a_good_seal() -> None:
    refused(seal(b'{\n "a": }\n}'), "is not JSON")


def test_values_that_json_cannot_hold() -> None:
    model = replace(SMALL.model, config={"x": float("nan")})
    with pytest.raises(ArtifactError, match="cannot be written"):
        replace(SMALL, model=model).to_bytes()


UNSAFE = ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "", ".", "..", "a\\b", "c:x", "a/"]


@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_paths(path: str) -> None:
    with pytest.raises(ArtifactError, match="unsafe path"):
        check_relative(path)
    refused(replace(SMALL, files=(replace(LIBRARY, path=path),)).to_bytes(), "unsafe path")


def test_what_is_used_must_be_listed() -> None:
    weight = WeightSpec(name="w", dtype="float32", shape=(1,), shard="w.safetensors")
    weights = WeightsInfo(tensors=(weight,))
    refused(replace(SMALL, files=()).to_bytes(), "uses 'model.so' but lists no such file")
    refused(replace(SMALL, weights=weights).to_bytes(), "uses 'w.safetensors' but lists no")
    model = replace(SMALL.model, licence="LICENSE")
    refused(replace(SMALL, model=model).to_bytes(), "uses 'LICENSE'")


def test_chunks_must_cover_the_file() -> None:
    refused(replace(SMALL, files=(replace(LIBRARY, chunks=()),)).to_bytes(), "wrong chunk count")
    refused(replace(SMALL, files=(replace(LIBRARY, bytes=-1),)).to_bytes(), "wrong chunk count")


def test_an_unknown_dtype() -> None:
    (cache,) = SMALL.caches
    cache = replace(cache, tensors=(replace(cache.tensors[0], dtype="int3"),))
    refused(replace(SMALL, caches=(cache,)).to_bytes(), "unknown dtype 'int3'")


def test_the_abi_hash_depends_on_all_three() -> None:
    hashes = {abi_hash("1", "2", 3), abi_hash("0", "2", 3), abi_hash("1", "0", 3)}
    assert len(hashes | {abi_hash("1", "2", 4)}) == 4
    assert abi_hash("1", "2", 3) == abi_hash("1", "2", 3)


def test_pages_of_another_form_are_not_the_same_pages() -> None:
    """Keys that lie in columns mean nothing to a library that reads rows."""
    (cache,) = SMALL.caches
    other = replace(SMALL, caches=(replace(cache, form="key-columns"),))
    assert Manifest.from_bytes(other.to_bytes()) == other
    assert kv_identity(other).layout != kv_identity(SMALL).layout
    assert kv_identity(other).model == kv_identity(SMALL).model
    assert re.fullmatch("[0-9a-f]{32}", kv_identity(SMALL).layout)
    refused(replace(SMALL, caches=(replace(cache, form="spiral"),)).to_bytes(), "form 'spiral'")


SEEING = replace(
    SMALL,
    embeddings=EmbeddingsInfo(slots=8, width=4),
    vision=VisionInfo(
        processor="idefics3", image_token="<image>", image_token_id=2, patch_size=8, merge_size=2,
        image_size=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), resample="lanczos",
        longest_edge=128, split=True,
    ),
)  # fmt: skip


def test_pictures_come_back_as_they_were_and_are_absent_without_a_tower() -> None:
    assert Manifest.from_bytes(SEEING.to_bytes()) == SEEING
    assert "vision" not in json.loads(SMALL.to_bytes())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"embeddings": None}, "no room for its rows"),
        ({"embeddings": EmbeddingsInfo(slots=0, width=4)}, "no sound shape"),
        ({"token_columns": ("position_t", "visible_until")}, "columns of tokens"),
        ({"token_columns": ("colour",)}, "columns of tokens"),
    ],
)
def test_rows_of_images_that_make_no_sense_are_refused(
    changed: dict[str, Any], message: str
) -> None:
    refused(replace(SEEING, **changed).to_bytes(), message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"patch_size": 0}, "no sound size"),
        ({"image_size": 56}, "no sound size"),
        ({"max_tiles": -1}, "no sound size"),
        ({"window_size": 5}, "windows of no whole rows"),
        ({"image_token_id": -1}, "an image token that is none"),
        ({"image_token_id": 1 << 30}, "an image token that is none"),
        ({"image_token": ""}, "an image token that is none"),
        ({"std": (0.5, 0.0, 0.5)}, "three channels"),
        ({"longest_edge": 0}, "without their size"),
        ({"processor": "gemma3", "image_size": 0}, "without their size"),
        ({"processor": "qwen2_vl", "min_pixels": 9, "max_pixels": 8}, "bounds of their pixels"),
        ({"folder": "../vision"}, "unsafe path"),
    ],
)
def test_pictures_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    assert SEEING.vision is not None
    refused(replace(SEEING, vision=replace(SEEING.vision, **changed)).to_bytes(), message)


def test_the_dtype_of_pages_that_is_wanted() -> None:
    """Another one is refused with what the library has."""
    check_kv(SMALL, None)
    check_kv(SMALL, "f16")
    with pytest.raises(UnsupportedError, match=r"use one of .*f16"):
        check_kv(SMALL, "f17")
    with pytest.raises(UnsupportedError, match="was compiled for f16; compile the model again"):
        check_kv(SMALL, "int8")
    (cache,) = SMALL.caches
    scale = TensorSpec(name="kv_scale.0", dtype="float16", shape=("num_pages", 2, 1, 16))
    quantized = replace(SMALL, caches=(replace(cache, tensors=(*cache.tensors, scale)),))
    check_kv(quantized, "int8")
    with pytest.raises(UnsupportedError, match="was compiled for int8"):
        check_kv(quantized, "f16")
    with pytest.raises(UnsupportedError, match="was compiled for no pages"):
        check_kv(replace(SMALL, caches=()), "f16")
    with pytest.raises(UnsupportedError, match="was compiled for f16 and int8"):
        check_kv(replace(SMALL, caches=(cache, *quantized.caches)), "f16")


def test_the_same_model_has_the_same_identity_whatever_the_order_of_its_config() -> None:
    config = dict(reversed(SMALL.model.config.items()))
    other = replace(SMALL, model=replace(SMALL.model, config=config))
    assert [*other.model.config] != [*SMALL.model.config]
    assert kv_identity(other) == kv_identity(SMALL)
