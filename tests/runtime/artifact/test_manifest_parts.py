"""Parts that few manifests have (adapters, images, encoders, ranks, embeddings), each at its bounds
and one beyond: what is beyond would be an allocation, or an index in machine code."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.checks.consistency import _EMPTY, _out_of_range, check_consistency
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import (
    AdaptersInfo,
    AdapterSite,
    EmbeddingsInfo,
    EncoderInfo,
    FileEntry,
    RanksInfo,
    VisionInfo,
    tables_of,
)
from mlcc.artifact.text_files import GENERATION_CONFIG, generation_config
from mlcc.errors import ArtifactError
from tests.runtime.artifact.small_artifact import make

SITE = AdapterSite(modules=("q", "k"), outputs=(4, 8), inputs=16)
ADAPTERS = AdaptersInfo(slots=2, rank=8, sites=(SITE,))
ENCODER = EncoderInfo(task="embed", pooling="cls", width=8, normalize=True, prompts={"query": "q"})
EMBEDDINGS = EmbeddingsInfo(slots=4, width=8)
COLOURS = (0.5, 0.5, 0.5)
VISION = VisionInfo(
    processor="gemma3",
    image_token="<image>",
    image_token_id=15,
    patch_size=14,
    merge_size=2,
    image_size=56,
    mean=COLOURS,
    std=COLOURS,
    resample="bilinear",
)
WIDE = 2**31 - 1


def test_fields_that_a_processor_does_not_have_are_zero() -> None:
    """As a manifest without them is read; 1 would be a bound of one pixel or one tile."""
    bounds = VISION.longest_edge, VISION.max_tiles, VISION.min_pixels, VISION.max_pixels
    assert bounds == (0, 0, 0, 0) and not VISION.split


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = make(tmp_path_factory.mktemp("parts") / "tiny")
    return Manifest.from_bytes((Path(folder) / "mlcc.json").read_bytes())


def checked(manifest: Manifest, gist: str | None, **parts: Any) -> None:
    changed = replace(manifest, **parts)
    with suppress(ValueError):
        changed = replace(changed, tables=tables_of(changed.layout))
    if gist is None:
        return check_consistency(changed)
    with pytest.raises(ArtifactError, match=gist):
        check_consistency(changed)


NONSENSE, TOO_WIDE = "room for adapters that makes no sense", "beyond what kernels count in"


@pytest.mark.parametrize(
    ("change", "gist"),
    [
        ({}, None),
        ({"slots": 1}, None),
        ({"slots": 1024}, None),
        ({"slots": 0}, NONSENSE),
        ({"slots": 1025}, NONSENSE),
        ({"rank": 1}, None),
        ({"rank": 512}, None),
        ({"rank": 0}, NONSENSE),
        ({"rank": 513}, NONSENSE),
        ({"sites": ()}, NONSENSE),
        ({"sites": (replace(SITE, outputs=(4,)),)}, NONSENSE),
        ({"sites": (replace(SITE, outputs=(4, 0)),)}, NONSENSE),
        ({"sites": (replace(SITE, inputs=0),)}, NONSENSE),
        ({"sites": (replace(SITE, inputs=2**31),)}, NONSENSE),
        ({"sites": (replace(SITE, inputs=WIDE),)}, TOO_WIDE),
        ({"sites": (SITE, replace(SITE, modules=("v", "q")))}, "the adapted module 'q' twice"),
    ],
)
def test_room_for_adapters(manifest: Manifest, change: dict[str, Any], gist: str | None) -> None:
    checked(manifest, gist, adapters=replace(ADAPTERS, **change))


def test_one_adapter_of_the_widest_layer(manifest: Manifest) -> None:
    site = AdapterSite(modules=("q",), outputs=(1,), inputs=WIDE)
    checked(manifest, None, adapters=AdaptersInfo(slots=1, rank=1, sites=(site,)))


@pytest.mark.parametrize(
    ("change", "gist"),
    [
        ({}, None),
        ({"slots": 1, "width": 1}, None),
        ({"slots": WIDE, "width": 1 << 20}, None),
        ({"slots": 0}, "no sound shape"),
        ({"slots": 1 << 31}, "no sound shape"),
        ({"width": 0}, "no sound shape"),
        ({"width": (1 << 20) + 1}, "no sound shape"),
    ],
)
def test_embeddings(manifest: Manifest, change: dict[str, Any], gist: str | None) -> None:
    checked(manifest, gist, embeddings=replace(EMBEDDINGS, **change))


@pytest.mark.parametrize(
    ("change", "gist"),
    [
        ({}, None),
        ({"width": 1}, None),
        ({"width": 1 << 20}, None),
        ({"width": 0}, "makes no sense"),
        ({"width": (1 << 20) + 1}, "makes no sense"),
        ({"task": "paint"}, "makes no sense"),
        ({"task": "score"}, "makes no sense"),
        ({"task": "score", "width": 1}, None),
        ({"task": "classify", "width": 2, "labels": ("a", "b")}, None),
        ({"task": "classify"}, "other classes"),
        ({"labels": ("a",)}, "other classes"),
        ({"pooling": "median"}, "makes no sense"),
        ({"activation": "relu"}, "makes no sense"),
        ({"segments": 2}, None),
        ({"segments": 3}, "makes no sense"),
        ({"default_prompt": "query"}, None),
        ({"default_prompt": "none"}, "no prompt of the name"),
    ],
)
def test_encoders(manifest: Manifest, change: dict[str, Any], gist: str | None) -> None:
    whole = replace(manifest.limits, max_step_tokens=manifest.limits.context)
    checked(manifest, gist, encoder=replace(ENCODER, **change), limits=whole)


def test_an_encoders_steps_hold_a_whole_text(manifest: Manifest) -> None:
    checked(manifest, "too small for an encoder's texts", encoder=ENCODER)


SIZE, TOKEN, WINDOWS = "of no sound size", "an image token that is none", "windows of no whole rows"
CHANNELS, NO_SIZE = "images without three channels", "images without their size"
PIXELS = "without bounds of their pixels"
QWEN = {"processor": "qwen2_vl", "image_size": 0}


@pytest.mark.parametrize(
    ("change", "gist"),
    [
        ({}, None),
        ({"patch_size": 0, "image_size": 0, "processor": "x"}, SIZE),
        ({"patch_size": 1024, "merge_size": 1, "image_size": 1024}, None),
        ({"patch_size": 1025, "merge_size": 1, "image_size": 1025}, SIZE),
        ({"merge_size": 0}, SIZE),
        ({"patch_size": 1, "merge_size": 64, "image_size": 64}, None),
        ({"patch_size": 1, "merge_size": 65, "image_size": 65}, SIZE),
        ({"image_size": 70}, SIZE),
        ({"patch_size": 1, "merge_size": 1, "image_size": 1 << 14}, None),
        ({"patch_size": 1, "merge_size": 1, "image_size": (1 << 14) + 1}, SIZE),
        ({"max_tiles": WIDE}, None),
        ({"max_tiles": 1 << 31}, SIZE),
        ({"min_pixels": -1}, SIZE),
        ({"image_token_id": 0}, None),
        ({"image_token_id": -1}, TOKEN),
        ({"image_token_id": 16}, TOKEN),
        ({"image_token": ""}, TOKEN),
        ({"window_size": 28}, None),
        ({"window_size": -28}, WINDOWS),
        ({"window_size": 14}, WINDOWS),
        ({"mean": COLOURS[:2]}, CHANNELS),
        ({"std": COLOURS[:2]}, CHANNELS),
        ({"std": (0.5, 0.0, 0.5)}, CHANNELS),
        ({"image_size": 0}, NO_SIZE),
        ({"processor": "idefics3"}, NO_SIZE),
        ({"processor": "idefics3", "longest_edge": 56}, None),
        ({"processor": "another", "image_size": 0}, None),
        ({**QWEN, "min_pixels": 784, "max_pixels": 784}, None),
        ({**QWEN, "min_pixels": 783, "max_pixels": 784}, PIXELS),
        ({**QWEN, "min_pixels": 785, "max_pixels": 784}, PIXELS),
        ({"folder": "../elsewhere"}, "unsafe path"),
    ],
)
def test_vision(manifest: Manifest, change: dict[str, Any], gist: str | None) -> None:
    checked(manifest, gist, vision=replace(VISION, **change), embeddings=EMBEDDINGS)


def test_parts_that_exclude_each_other(manifest: Manifest) -> None:
    whole = replace(manifest.limits, max_step_tokens=manifest.limits.context)
    both = {"encoder": ENCODER, "limits": whole}
    checked(manifest, "no room for its rows", vision=VISION)
    checked(manifest, "tower and an encoder", vision=VISION, embeddings=EMBEDDINGS, **both)
    ranks = RanksInfo(shards=(manifest.weights.shards, ("LICENSE",)))
    checked(manifest, "ranks, and adapters", **with_ranks(manifest, 2), adapters=ADAPTERS)
    checked(manifest, "rank 1 that are not as rank 0's", ranks=ranks)
    gpu = replace(manifest.target, device="metal")
    checked(manifest, "ranks on 'metal'", **with_ranks(manifest, 2), target=gpu)


def with_ranks(manifest: Manifest, count: int) -> dict[str, Any]:
    """The fields of a model of `count` ranks, each with a shard of its own."""
    (shard,) = manifest.weights.shards
    first = next(entry for entry in manifest.files if entry.path == shard)
    more = [replace(first, path=f"rank{number}") for number in range(1, count)]
    shards = ((shard,), *((entry.path,) for entry in more))
    return {"files": (*manifest.files, *more), "ranks": RanksInfo(shards=shards)}


@pytest.mark.parametrize(("count", "fits"), [(1, False), (2, True), (64, True), (65, False)])
def test_how_many_ranks(manifest: Manifest, count: int, fits: bool) -> None:
    checked(manifest, None if fits else "not within 2", **with_ranks(manifest, count))


def test_an_empty_file_has_no_chunks(manifest: Manifest) -> None:
    def with_entry(**fields: Any) -> tuple[FileEntry, ...]:
        empty = FileEntry(path="empty", bytes=0, sha256=_EMPTY, chunks=())
        return (*manifest.files, replace(empty, **fields))

    checked(manifest, None, files=with_entry())
    checked(manifest, "wrong chunk count", files=with_entry(chunks=(_EMPTY,)))
    checked(manifest, "wrong chunk count", files=with_entry(bytes=-1))
    checked(manifest, "two hashes", files=with_entry(sha256="0" * 64))


def test_columns_of_tokens_are_known_and_in_order(manifest: Manifest) -> None:
    checked(manifest, "columns of tokens that make no sense", token_columns=("x",))


INT32, INT53 = 2**31 - 1, 2**53 - 1


@pytest.mark.parametrize(
    ("part", "name", "least", "most"),
    [
        ("model", "vocab_size", 6, INT32),  # its end tokens are 2 and 5
        ("model", "parameters", 0, INT53),
        ("limits", "context", 1, INT32),
        ("limits", "max_batch", 1, 1 << 16),
        ("limits", "max_step_tokens", 1, INT32),
        ("limits", "max_rows", 1, INT32),
        ("limits", "max_step_pages", 0, 1 << 28),
        ("limits", "max_copies", 1, INT32),
        ("memory", "weights_bytes", 0, INT53),
        ("memory", "cache_bytes", 0, INT53),
        ("memory", "workspace_bytes", 0, INT53),
        ("caches", "page_size", 1, 1 << 16),
        ("caches", "window", 1, INT32),
        ("caches", "pool", 1, INT32),
    ],
)
def test_numbers_at_their_bounds(
    manifest: Manifest, part: str, name: str, least: int, most: int
) -> None:
    for value, fits in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
        if name == "window" and not value:
            continue  # 0 = none
        old = getattr(manifest, part)
        changed: Any = (replace(old[0], **{name: value}),) if part == "caches" else None
        new = replace(manifest, **{part: changed or replace(old, **{name: value})})
        assert (not [*_out_of_range(new)]) is fits, value


def test_how_many_caches_and_which_end_tokens(manifest: Manifest) -> None:
    for count, fits in ((1, True), (64, True), (0, False), (65, False)):
        new = replace(manifest, caches=manifest.caches * count)
        assert (not [*_out_of_range(new)]) is fits
    for token, fits in ((0, True), (15, True), (-1, False), (16, False)):
        new = replace(manifest, model=replace(manifest.model, eos_token_ids=(token,)))
        assert (not [*_out_of_range(new)]) is fits


@pytest.mark.parametrize("text", ["{", "[1]", "1", "[" * 100_000])
def test_a_damaged_generation_config(manifest: Manifest, text: str) -> None:
    with pytest.raises(ArtifactError, match=r"generation_config\.json is damaged"):
        generation_config(manifest, lambda path: text)
    assert generation_config(manifest, lambda path: '{"top_k": 5}') == {"top_k": 5}
    others = tuple(entry for entry in manifest.files if entry.path != GENERATION_CONFIG)
    assert generation_config(replace(manifest, files=others), lambda path: text) == {}
