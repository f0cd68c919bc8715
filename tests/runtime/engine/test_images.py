"""Images under random requests on the exact toy: every answer is that of an engine without images
whose prompt has the rows' own tokens in their places; no slot leaks, and rows are found again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from mlcc.device.toy.executor import token_of_row
from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.request import ImageTile
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError
from tests.runtime.engine.helpers.drafting import Eager
from tests.runtime.engine.helpers.drive import Driver, rows_of, small, toy_driver
from tests.runtime.engine.helpers.naive import answer

IMAGE = 63
GREEDY = SamplingParams(temperature=0.0, max_tokens=6)
GROUPS = {
    "pages": [CacheGroup("paged", 4)],
    "window": [CacheGroup("window", 4, 12), CacheGroup("paged", 4)],
    "states": [CacheGroup("paged", 4), CacheGroup("state")],
}


class Blank:
    """Tokens without text."""

    vocab_size = 64

    def decode(self, ids: Sequence[int], /) -> str:
        return ""


def seeing(groups: str = "pages", slots: int = 12, both_ways: bool = False) -> Capacity:
    """Pages for about three requests, and slots for two or three images."""
    pools = [5 if group.kind == "state" else 24 for group in GROUPS[groups]]
    found = small(*GROUPS[groups], pools=pools)
    layout = found.layout
    if both_ways:
        layout = replace(layout, token_columns=("visible_until",))
    return replace(found, embedding_slots=slots, layout=layout)


def request_of(name: str, words: list[int], rows: list[int], **more: object) -> Request:
    """A prompt of tokens and images: -1 - i is image i, of rows[i] rows; of 6 rows, in three lines
    with tokens of text between them."""
    prompt, tiles = list[int](), list[ImageTile]()
    for word in words:
        if word < 0:
            pixels, count = bytes([-1 - word]), rows[-1 - word]
            lines = 3 if count == 6 else 1
            tile = ImageTile(len(prompt), count, pixels, pixels, 1, 1, lines)
            tiles.append(tile)
            prompt += ([IMAGE] * (count // lines) + [8]) * lines
            del prompt[tile.start + tile.tokens :]
        else:
            prompt.append(word)
    return Request(name, prompt, GREEDY, media=tuple(tiles), **more)  # type: ignore[arg-type]


def plain(request: Request) -> Request:
    """The same without images: each row's token, as the toy sees it, in its place."""
    prompt = list(request.prompt)
    for tile in request.media:
        places = range(tile.start, tile.start + tile.tokens)
        rows = [at for at in places if prompt[at] == IMAGE]
        for at, row in zip(rows, rows_of(tile), strict=True):
            prompt[at] = token_of_row(row)
    return replace(request, prompt=prompt, media=())


@pytest.mark.parametrize("both_ways", [False, True], ids=["cut", "whole"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "lookup"])
def test_a_storm(groups: str, depth: int, both_ways: bool, drafts: bool) -> None:
    draw = random.Random(depth + 2 * both_ways)
    rows = [6, *(draw.randrange(1, 9) for _ in range(5))]
    capacity = seeing(groups, both_ways=both_ways)
    speculator = Eager(NgramProposer.of, 3, draw=draw) if drafts else None
    driver = toy_driver(capacity, depth=depth, speculator=speculator)
    requests: dict[str, Request] = {}
    for number in range(60):
        words = [draw.choice([-1, -2, -3, -4, -5, -6, 1, 2, 3, 4, 5, 6, 7]) for _ in range(6)]
        request = request_of(f"r{number}", [*words, 9], rows, tenant=draw.choice("ab"))
        driver.add(request)
        requests[request.id] = request
        if draw.random() < 0.1:
            driver.cancel(draw.choice([r for r in requests if not driver.got[r].finished]))
        if draw.random() < 0.01:
            fail(driver)
        for _ in range(draw.randrange(4)):
            if driver.engine.has_work:
                driver.step()
    got, answered = driver.run(), 0
    for arrival, (name, request) in enumerate(requests.items()):
        finished = got[name].finished
        assert finished is not None
        if finished.reason == "length":
            wanted = answer(plain(request), arrival, capacity, (), Blank())
            assert got[name].tokens == wanted.tokens, name
            answered += 1
    assert answered > 30
    assert driver.encoded < sum(len(request.media) for request in requests.values())
    assert driver.engine.stats().cached_tokens > 0 or groups == "states"


def fail(driver: Driver) -> None:
    """The device fails and recovers: its contents are lost."""
    while driver.tickets:
        driver.executor.collect(driver.tickets.popleft())
    driver.take(driver.engine.fail())
    driver.engine.check_integrity()


def test_the_second_question_about_an_image_computes_neither_rows_nor_prefix() -> None:
    driver = toy_driver(seeing())
    driver.add(request_of("first", [1, 2, -1, 3, 4, 5, 6], [8]))
    driver.run()
    driver.add(request_of("second", [1, 2, -1, 3, 4, 5, 9], [8]))
    driver.run()
    assert driver.encoded == 1
    assert driver.got["second"].finished is not None
    assert driver.got["second"].finished.cached_tokens >= 12


def test_neither_images_nor_tenants_are_confused() -> None:
    driver = toy_driver(seeing())
    for name, image, tenant, most in (("a", -1, "x", 0), ("b", -2, "x", 2), ("c", -1, "y", 0)):
        driver.add(request_of(name, [1, 2, image, 3, 4, 5, 6], [8, 8], tenant=tenant))
        driver.run()
        assert driver.got[name].finished is not None
        assert driver.got[name].finished.cached_tokens <= most  # tokens before the image
    assert driver.encoded == 3
    assert driver.got["a"].tokens == driver.got["c"].tokens != driver.got["b"].tokens


def test_an_image_seen_both_ways_is_in_one_step() -> None:
    """Beside streams that fill most of a step, too."""
    driver = toy_driver(seeing(both_ways=True))
    for name in ("one", "two", "three"):
        driver.add(request_of(name, [1, 2, 3], []))
    driver.step()
    driver.add(request_of("image", [5, 6, 7, 8, 9, 10, 11, -1, 12], [12]))
    while driver.engine.has_work:
        if (batch := driver.engine.plan()) is None:
            driver.encode()
            continue
        layout = batch.layout.tokens
        visible = batch.column(layout, "visible_until")
        ids, position = batch.column(layout, "id"), batch.column(layout, "position")
        rows = [p for p, i in zip(position, ids, strict=True) if i >= 64]
        assert rows in ([], list(range(7, 19)))
        assert [v for v, i in zip(visible, ids, strict=True) if i >= 64] == [18] * len(rows)
        driver.take(driver.engine.commit(driver.executor.collect(driver.executor.submit(batch))))


def places_of(words: list[int], sizes: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Time, row and column of each token, as Qwen2-VL counts them, literally."""
    found, at = list[tuple[int, int, int]](), 0
    for word in words:
        if word >= 0:
            found.append((at, at, at))
            at += 1
            continue
        height, width = sizes[-1 - word]
        found += [(at, at + y, at + x) for y in range(height) for x in range(width)]
        at += max(height, width)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_places_of_tokens_are_qwens(seed: int) -> None:
    """In chunks, in decode steps, and in those that are patched."""
    draw = random.Random(seed)
    sizes = [(draw.randrange(1, 4), draw.randrange(1, 4)) for _ in range(3)]
    words = [draw.choice([-1, -2, -3, 1, 2, 3, 4]) for _ in range(7)] + [5]
    tiles, prompt = list[ImageTile](), list[int]()
    for word in words:
        if word < 0:
            height, width = sizes[-1 - word]
            pixels = bytes([-1 - word])
            tile = ImageTile(len(prompt), height * width, pixels, pixels, 8 * height, 8 * width)
            tiles.append(tile)
        prompt += [word] if word >= 0 else [IMAGE] * tiles[-1].rows
    names = ("position_t", "position_h", "position_w")
    capacity = seeing(slots=16)
    capacity = replace(capacity, layout=replace(capacity.layout, token_columns=names))
    driver = toy_driver(capacity)
    driver.add(Request("places", prompt, GREEDY, media=tuple(tiles)))
    seen: dict[int, tuple[float, ...]] = {}
    while driver.engine.has_work:
        if (batch := driver.engine.plan()) is None:
            driver.encode()
            continue
        table = batch.layout.tokens
        columns = [batch.column(table, name) for name in ("position", *names)]
        seen |= {int(place[0]): place[1:] for place in zip(*columns, strict=True)}
        driver.take(driver.engine.commit(driver.executor.collect(driver.executor.submit(batch))))
    wanted = places_of([*words, *[1] * 5], sizes)
    assert [seen[i] for i in range(len(wanted))] == wanted


def test_requests_that_do_not_fit_are_refused() -> None:
    engine = toy_driver(seeing()).engine
    with pytest.raises(CapacityError, match="an image of 13 tokens, and a step reads at most 12"):
        engine.add(request_of("large", [-1, 1], [13]))
    tile = ImageTile(2, 4, b"k", b"p", 1, 1)
    with pytest.raises(InvalidRequestError, match="overlaps another or the prompt's end"):
        engine.add(Request("end", [1, 2, IMAGE, IMAGE], GREEDY, media=(tile,)))
    with pytest.raises(InvalidRequestError, match="overlaps another or the prompt's end"):
        engine.add(Request("twice", [IMAGE] * 9, GREEDY, media=(tile, tile)))
    with pytest.raises(InvalidRequestError, match="log-probabilities of prompt tokens"):
        sampling = replace(GREEDY, logprobs=1, prompt_logprobs=True)
        reading = toy_driver(seeing(), tokenizer=Blank()).engine
        reading.add(replace(request_of("logs", [-1, 1], [4]), sampling=sampling))
    with pytest.raises(UnsupportedError, match="reads text only"):
        toy_driver().engine.add(request_of("blind", [-1, 1], [4]))
    with pytest.raises(CapacityError, match="an image of 13 tokens"):
        whole = toy_driver(seeing(slots=32, both_ways=True)).engine
        whole.add(request_of("whole", [-1, 1], [13]))
    assert not engine.has_work
    engine.check_integrity()
