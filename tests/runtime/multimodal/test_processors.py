"""Processors against transformers' own with the PIL backend: the bytes of resized pixels, and the
token ids of texts with several images."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mlcc.artifact.schema import VisionInfo
from mlcc.engine.request import ImageTile
from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.multimodal.processors.processor import Box, ImagePlan, Tile
from mlcc.multimodal.processors.registry import processor_of
from mlcc.multimodal.prompt import with_rows
from tests.runtime.multimodal.helpers.oracles import processor_of_transformers, resized_by
from tests.runtime.multimodal.helpers.pictures import (
    gemma3,
    gemma4,
    idefics3,
    internvl,
    llama4,
    llava,
    llava_onevision,
    noise,
    pixtral,
    qwen2_vl,
)

MODELS = {
    "smolvlm": idefics3(),
    "idefics3 whole": idefics3(split=False),
    "idefics3 large": idefics3(longest_edge=5000, image_size=1024, patch_size=64),
    "gemma3": gemma3(),
    "gemma3 pan and scan": gemma3(split=True, max_tiles=4),
    "gemma4": gemma4(),
    "gemma4 280": gemma4(patch_size=16, max_pixels=280 * 48 * 48, position_axes=840),
    "llava": llava(),
    "llava_onevision": llava_onevision(),
    "llava_onevision alone": llava_onevision(grids=((112, 56), (56, 168)), max_tiles=1),
    "internvl": internvl(),
    "internvl whole": internvl(split=False),
    "llama4": llama4(),
    "llama4 few": llama4(max_tiles=6),
    "pixtral": pixtral(),
    "pixtral alone": pixtral(merge_size=1, longest_edge=500),
    "qwen2_vl": qwen2_vl(),
    "qwen3_vl": qwen2_vl(patch_size=16, min_pixels=65536, max_pixels=300_000),
}


def tiles_of(info: VisionInfo, image: Image.Image) -> list[Tile]:
    processor = processor_of(info)
    return processor.tiles(image, processor.plan(*image.size))


def sizes(name: str) -> list[tuple[int, int]]:
    rng = random.Random(name)
    drawn = [(rng.randint(1, 300), rng.randint(1, 300)) for _ in range(16)]
    drawn += [(rng.randint(257, 1200), rng.randint(257, 400)) for _ in range(5)]
    drawn += [(height, width) for width, height in drawn[-3:]]
    edges = [(1, 1), (32, 32), (128, 128), (128, 96), (33, 31), (512, 426), (512, 427), (57, 56)]
    return [size for size in drawn + edges if max(size) / min(size) < 200]


@pytest.mark.parametrize("name", MODELS)
def test_pixels_are_those_of_transformers_to_the_byte(name: str) -> None:
    info = MODELS[name]
    few = 1 if "large" in name else 9 if "llama4" in name else None
    for seed, (width, height) in enumerate(sizes(name)[:few]):
        image = noise(width, height, seed)
        made = tiles_of(info, image)
        expected = resized_by(info, image)
        if info.processor == "llava_onevision":  # whose tiles are one of the prompt
            assert made[0].pixels == b"".join(each.tobytes() for each in expected), (width, height)
            continue
        assert len(made) == len(expected), (width, height)
        for tile, pixels in zip(made, expected, strict=True):
            assert pixels.shape == (tile.height, tile.width, 3), (width, height)
            assert tile.pixels == pixels.tobytes(), (width, height)
            assert tile.rows == processor_of(info).rows((tile.width, tile.height)) > 0


@pytest.mark.parametrize("name", [name for name in MODELS if "large" not in name])
def test_token_ids_are_those_of_transformers(name: str) -> None:
    oracle, tokenizer = processor_of_transformers(MODELS[name])
    info = MODELS[name]
    info = replace(info, image_token_id=tokenizer.convert_tokens_to_ids(info.image_token))
    processor = processor_of(info)
    rng = random.Random(name)
    for count in (1, 1, 2, 3, 5):
        images = [noise(*rng.choice(sizes(name)), seed) for seed in range(count)]
        text = written(rng, processor.marks[0], count)
        cuts = {"gemma3": "do_pan_and_scan", "internvl": "crop_to_patches"}
        more = {cuts[info.processor]: info.split} if info.processor in cuts else {}
        expected = oracle(text=[text], images=[images], **more)["input_ids"][0]
        several = processor.alone and count > 1
        plans = [processor.plan(*image.size, low_detail=several) for image in images]
        pairs = zip(images, plans, strict=True)
        tiles = [tile for image, plan in pairs for tile in processor.tiles(image, plan)]
        parts = iter(text.split(processor.marks[0]))
        whole = next(parts) + "".join(plan.text + next(parts) for plan in plans)
        ids = tokenizer(whole)["input_ids"]
        made, placed = with_rows(ids, [info.image_token_id], tiles)
        assert made.tolist() == list(expected), text
        covered = [at for tile in placed for at in places_of(tile)]
        assert covered == [at for at, token in enumerate(made) if token == info.image_token_id]
        assert [tile.key for tile in placed] == [tile.key for tile in tiles]


def places_of(tile: ImageTile) -> list[int]:
    """Its image tokens: all but those after a line."""
    line = tile.rows // tile.lines + 1
    return [tile.start + at for at in range(tile.tokens) if tile.lines == 1 or (at + 1) % line]


def written(rng: random.Random, mark: str, count: int) -> str:
    """Words around the marks, with the white space that a tokenizer could join with theirs."""
    around = ["", " ", "\n", "\n\n", " a ", "what is this?", "\n b\n"]
    return rng.choice(around).join([rng.choice(around) + mark + rng.choice(around)] * count)


def test_every_name_of_the_record_has_a_processor() -> None:
    for info in (
        idefics3(),
        gemma3(),
        gemma4(),
        llava(),
        llava_onevision(),
        internvl(),
        llama4(),
        pixtral(),
        qwen2_vl(),
    ):
        assert processor_of(info).info is info


def test_an_unknown_processor_says_what_is_known() -> None:
    with pytest.raises(ArtifactError, match="processor 'fuyu'; this mlcc knows idefics3"):
        processor_of(idefics3(processor="fuyu"))


def test_an_unknown_resampling_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="resized by 'hamming', which is not built"):
        processor_of(idefics3(resample="hamming"))


def test_a_picture_too_long_for_qwen_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="too long for this model"):
        processor_of(qwen2_vl()).plan(2010, 10)


def test_keys_differ_by_pixels_size_and_processor() -> None:
    wide, high = (Image.new("RGB", size, "red") for size in ((56, 28), (28, 56)))
    no_minimum = qwen2_vl(min_pixels=28 * 28)
    keys = {tiles_of(no_minimum, image)[0].key for image in (wide, high)}
    keys.add(tiles_of(no_minimum, Image.new("RGB", (56, 28), "blue"))[0].key)
    keys.add(tiles_of(gemma3(), wide)[0].key)
    keys.add(tiles_of(idefics3(image_size=56, patch_size=14, split=False), wide)[0].key)
    assert len(keys) == 5
    assert tiles_of(no_minimum, wide)[0].key == tiles_of(no_minimum, wide.copy())[0].key


@pytest.mark.parametrize(
    "name", ["smolvlm", "gemma3 pan and scan", "gemma4 280", "pixtral", "qwen2_vl"]
)
def test_low_detail_takes_few_tokens(name: str) -> None:
    """One tile, of fewer pixels where the size is free; never below what the model needs."""
    larger = {"qwen2_vl": qwen2_vl(max_pixels=28 * 28 * 5000), "pixtral": pixtral(longest_edge=980)}
    info = larger.get(name, MODELS[name])
    processor = processor_of(info)
    low, high = (processor.plan(1200, 400, low_detail=low) for low in (True, False))
    assert len(low.tiles) == 1
    assert processor.tokens(low) < processor.tokens(high)
    if name == "qwen2_vl":
        width, height = low.tiles[0].size
        assert 0.8 < width * height / (512 * 512) <= 1


@pytest.mark.parametrize("name", MODELS)
def test_an_image_of_the_useful_size_makes_the_same_tiles(name: str) -> None:
    """Of a larger image, one scaled down to it: as many tiles of the same sizes, or, where sizes
    are free, as many tokens or a few more; no square is enlarged."""
    processor = processor_of(MODELS[name])
    for size in ((9000, 6000), (6000, 9000), (8000, 8000), (9000, 3000), (1500, 9000)):
        less = scaled(size, processor.useful_size)
        assert less < size
        made, wanted = (processor.plan(*each) for each in (less, size))
        if MODELS[name].processor in ("qwen2_vl", "gemma4"):
            side = processor.info.patch_size * processor.info.merge_size
            most = MODELS[name].max_pixels // side**2
            assert 0.9 * processor.tokens(wanted) <= processor.tokens(made) <= most
            continue
        assert [tile.size for tile in made.tiles] == [tile.size for tile in wanted.tiles]
        assert made.resizes[1:] == wanted.resizes[1:]
        least = 0 if "longest_edge" in processor.useful_size else MODELS[name].image_size
        sides = [(right - left, lower - upper) for left, upper, right, lower in boxes_of(made)]
        assert min(map(min, sides)) >= least, size


def boxes_of(plan: ImagePlan) -> list[Box]:
    return [tile.box for tile in plan.tiles]


def scaled(size: tuple[int, int], limits: Mapping[str, int]) -> tuple[int, int]:
    """As the chat page does (web/page/conversation/images.ts)."""
    longer, shorter, area = max(size), min(size), size[0] * size[1]
    scale = min(
        limits.get("longest_edge", longer) / longer,
        limits.get("shortest_edge", shorter) / shorter,
        math.sqrt(limits.get("max_pixels", area) / area),
    )
    return round(size[0] * scale), round(size[1] * scale)


@pytest.mark.parametrize("ids", [[1, 2], [1, 5, 5], [5, 5, 5]])
def test_image_tokens_must_be_those_of_tiles(ids: Sequence[int]) -> None:
    tiles: list[Any] = tiles_of(idefics3(split=False), noise(32, 32))
    with pytest.raises(InvalidRequestError, match="image tokens for 1 tiles"):
        with_rows(ids, [5], tiles)


def test_a_line_must_end_with_one_token() -> None:
    """Of a tokenizer that lacks [IMG_BREAK] and writes it in letters."""
    tiles = tiles_of(pixtral(), noise(40, 40))
    made, (placed,) = with_rows([1, 5, 7, 5, 8], [5], tiles)
    assert list(made) == [1, 5, 5, 7, 5, 5, 8]
    assert (placed.start, placed.rows, placed.lines, placed.tokens) == (1, 4, 2, 5)
    with pytest.raises(ArtifactError, match="no single token for the end of an image's line"):
        with_rows([1, 5, 7, 7, 5, 8], [5], tiles)
    with pytest.raises(InvalidRequestError, match="1 image tokens for 2 lines"):
        with_rows([1, 5, 7], [5], tiles)


def test_nearest_is_pillows() -> None:
    image = noise(50, 41)
    (tile,) = tiles_of(gemma3(resample="nearest"), image)
    assert tile.pixels == np.asarray(image.resize((56, 56), Image.Resampling.NEAREST)).tobytes()
