"""Random arrivals, cancellations, priorities, tenants, short pages, exports and failing devices on
the exact oracle, with fixed seeds. Nothing leaks, nothing is lost, and every token is the naive
engine's."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.migration import Identity
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.engine.spec_decode.speculator import Speculator
from mlcc.errors import InvalidRequestError
from mlcc.model.kv_transfer import export_request, import_request
from tests.runtime.engine.helpers.drafting import Drafting
from tests.runtime.engine.helpers.drive import Driver, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer
from tests.runtime.engine.test_against_naive import TOKENIZER, check_answer

VOCAB = ByteTokenizer.vocab_size
PAGED, WINDOW, STATE = CacheGroup("paged", 4), CacheGroup("window", 4, 6), CacheGroup("state")
GROUPS: Sequence[tuple[Sequence[CacheGroup], Sequence[int]]] = (
    ([PAGED], [14]),
    ([PAGED, WINDOW], [14, 9]),
    ([PAGED, STATE], [14, 9]),
)
"""Pools in which a long request or two find room, or half of the sequences of a step."""
EOS = {1}
IDENTITY = Identity("layout", "model", "tokenizer")
MOST_LIVE = 24
BLOCKS = 1500
"""Bound of the growth of Python's memory blocks between two quiet moments, for its own caches: a
sixth of a block for each request between them."""
SETTINGS = [
    SamplingParams(temperature=0.0, max_tokens=9),
    SamplingParams(max_tokens=14, stop=("ab", "€")),
    SamplingParams(max_tokens=20, ignore_eos=True, seed=5),
    SamplingParams(max_tokens=8, min_tokens=4, frequency_penalty=0.5, logit_bias=((3, 2.0),)),
]


@dataclass
class Live:
    request: Request
    arrival: int


class Storm:
    """One engine under random requests, cancellations and failures."""

    def __init__(
        self, seed: int, kind: int, depth: int, prefix_cache: bool, speculate: str = ""
    ) -> None:
        groups, pools = GROUPS[kind]
        self.draw = random.Random(seed)
        self.capacity = Capacity.of(
            groups, pools, vocab_size=VOCAB, context=48, max_batch=5, max_step_tokens=12,
            token_columns=("hidden_row",) if speculate == "mtp" else (),
        )  # fmt: skip
        self.driver = self._driver(speculate, depth, prefix_cache)
        self.driver.seconds = self.draw.random  # decides how much of prompts, and no token
        self.live: dict[str, Live] = {}
        self.came = self.refused = self.ended = self.moved = 0
        self.reasons: dict[str, int] = {}
        self.openings = [[self.draw.randrange(VOCAB) for _ in range(n)] for n in (4, 8, 11)]

    def _driver(self, speculate: str, depth: int, prefix_cache: bool) -> Driver:
        """speculate: `lookup`, `mtp`, `draft` (a toy that is sometimes wrong), or none. The number
        of draft tokens follows their acceptance and the times of steps: here, by chance."""
        draft = None
        if speculate == "draft":
            bounds = Capacity.of(
                [PAGED], [self.capacity.pools[0]], vocab_size=VOCAB, context=40, max_batch=4,
                max_step_tokens=9,
            )  # fmt: skip
            draft = Drafting(bounds, 0.2, self.draw)
        return toy_driver(
            self.capacity, EOS, TOKENIZER, depth, seed=7, prefix_cache=prefix_cache, draft=draft,
            speculator=Speculator(NgramProposer.of) if speculate == "lookup" else None,
        )  # fmt: skip

    def tokens(self, most: int) -> list[int]:
        return [self.draw.randrange(VOCAB) for _ in range(self.draw.randint(1, most))]

    def run(self, requests: int) -> None:
        """Submit `count` requests, most of them in bursts; all of them end."""
        goal = self.came + requests
        while self.came < goal or self.driver.engine.has_work:
            if self.came < goal and (self.draw.random() < 0.3 or not self.driver.engine.has_work):
                for _ in range(self.draw.choice([1, 1, 2, 8])):
                    self.arrive()
            if self.live and self.draw.random() < 0.08:
                self.driver.cancel(self.draw.choice([*self.live]))
            if self.draw.random() < 0.002:
                self.fail()
            if self.live and self.draw.random() < 0.04:
                self.move(self.draw.choice([*self.live]))
            if self.driver.engine.has_work:
                self.driver.step()
            self.settle()

    def arrive(self) -> None:
        if len(self.live) >= MOST_LIVE:
            return
        draw = self.draw
        prompt = [*draw.choice([[], *self.openings]), *self.tokens(10)]
        request = Request(
            f"r{self.came}",
            prompt,
            draw.choice(SETTINGS),
            draw.choice(["", "", "t", "u"]),
            draw.choice(["", "", "s"]),
            priority=draw.choice([0, 0, 0, -1, 3]),
            background=draw.choice([False, False, True]),
        )
        self.came += 1
        try:
            self.driver.add(request)
        except InvalidRequestError:  # longer than the pages ever hold
            self.refused += 1
            return
        arrival = self.came - 1 - self.refused + self.moved
        self.live[request.id] = Live(request, arrival)

    def move(self, name: str) -> None:
        """A request leaves as bytes, and comes back."""
        driver, migration = self.driver, self.driver.engine.migration
        while driver.tickets:
            driver.take(driver.engine.commit(driver.executor.collect(driver.tickets.popleft())))
        if driver.got[name].finished:
            return
        data = export_request(migration, driver.executor, IDENTITY, name)
        driver.engine.cancel(name)  # what this tells comes later
        import_request(migration, driver.executor, IDENTITY, data)
        driver.engine.check_integrity()
        self.moved += 1

    def fail(self) -> None:
        """The device fails, and recovers."""
        while self.driver.tickets:
            self.driver.executor.collect(self.driver.tickets.popleft())
        self.driver.take(self.driver.engine.fail())
        self.driver.engine.check_integrity()

    def settle(self) -> None:
        """Compare finished answers with the naive engine's, and forget them."""
        for name in [n for n in self.live if self.driver.got[n].finished]:
            live, got = self.live.pop(name), self.driver.got.pop(name)
            check_answer(got, live.request, live.arrival, self.capacity, EOS)
            assert got.finished is not None
            self.reasons[got.finished.reason] = self.reasons.get(got.finished.reason, 0) + 1
            self.ended += 1

    def check_quiet(self) -> None:
        """Check that no page, request or step is left."""
        engine = self.driver.engine
        engine.forget_prefixes()
        engine.check_integrity()
        stats = engine.stats()
        assert (stats.waiting, stats.running, stats.in_flight, stats.pages_kept) == (0, 0, 0, 0)
        assert stats.pages_free == stats.pages
        assert not self.live and self.ended + self.refused == self.came

    def blocks(self) -> int:
        """Memory blocks allocated by Python."""
        self.check_quiet()
        gc.collect()
        return sys.getallocatedblocks()


SPECULATORS = ("draft", "", "lookup")
CASES = [
    (kind, depth, (kind + depth) % 3 > 0, SPECULATORS[(kind - depth) % 3])
    for kind in range(3)
    for depth in (1, 2, 3)
] + [(0, 1, True, "mtp"), (0, 2, False, "mtp"), (2, 1, True, "mtp")]


@pytest.mark.parametrize(("kind", "depth", "cache", "speculate"), CASES)
def test_a_storm(kind: int, depth: int, cache: bool, speculate: str) -> None:
    storm = Storm(100 * kind + 10 * depth + cache, kind, depth, cache, speculate)
    storm.run(160)
    storm.check_quiet()
    stats = storm.driver.engine.stats()
    assert (stats.drafted_tokens > 0) >= (speculate in ("draft", "mtp"))
    assert (stats.drafted_tokens > 0) <= (speculate != "")
    assert stats.preemptions > 0 and (stats.cached_tokens > 0) is cache
    assert storm.reasons.keys() >= {"stop", "length", "cancelled"}
    assert storm.moved > 0


def test_a_storm_in_which_drafts_of_a_whole_prompt_are_rejected() -> None:
    storm = Storm(7079, 2, 1, True, "draft")
    storm.run(100)
    storm.check_quiet()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "depth", "cache", "speculate"), [(0, 2, True, "draft"), (2, 3, True, "lookup")]
)
def test_ten_thousand_requests_leave_nothing(
    kind: int, depth: int, cache: bool, speculate: str
) -> None:
    storm = Storm(kind, kind, depth, cache, speculate)
    storm.run(1_000)
    before = storm.blocks()
    storm.run(9_000)
    assert abs(storm.blocks() - before) < BLOCKS
    assert storm.reasons.keys() == {"stop", "length", "cancelled", "error"}
