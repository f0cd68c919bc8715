"""Runs the engine against an executor, and collects the events of each request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Capacity, Engine, Event, Finished, Request, TextDelta, Tokenizer
from mlcc.engine.batch.executor import Executor
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.lora import Adapter, AdapterMatrix
from mlcc.engine.request import ImageTile
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.engine.spec_decode.mtp import MtpLayer
from mlcc.engine.spec_decode.speculator import Speculator
from mlcc.engine.text.logprobs import TokenLogprob


def small(
    *groups: CacheGroup,
    pools: Sequence[int] = (32,),
    context: int = 64,
    max_batch: int = 4,
    max_step_tokens: int = 16,
) -> Capacity:
    """A small capacity; without groups, one of pages of 4 tokens."""
    return Capacity.of(
        groups or [CacheGroup("paged", 4)],
        pools,
        vocab_size=64,
        context=context,
        max_batch=max_batch,
        max_step_tokens=max_step_tokens,
    )


SMALL = small()


@dataclass
class Got:
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    token_logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt: list[TokenLogprob] = field(default_factory=list)
    finished: Finished | None = None


def rows_of(tile: ImageTile) -> list[bytes]:
    """The rows of a tile, as a tower makes them of its pixels."""
    return [blake2b(tile.pixels + bytes([k]), digest_size=8).digest() for k in range(tile.rows)]


class Driver:
    """Keeps up to `depth` steps in flight and checks the engine's integrity after each."""

    def __init__(self, engine: Engine, executor: Executor, depth: int = 1) -> None:
        self.engine, self.executor, self.depth = engine, executor, depth
        self.tickets: deque[int] = deque()
        self.got: dict[str, Got] = {}
        self.seconds: Callable[[], float | None] = lambda: None
        """Seconds of the last step."""
        self.draft: Executor | None = None
        """The executor of the draft model, if there is one."""
        self.copies: dict[Adapter, list[AdapterMatrix]] = {}
        """Host copies of adapters that may be swapped out."""
        self.encoded = 0
        """Images whose rows were written."""

    def add(self, request: Request) -> None:
        self.engine.add(request)
        self.got[request.id] = Got()
        self.engine.check_integrity()

    def cancel(self, request_id: str) -> None:
        self.take(self.engine.cancel(request_id))
        self.engine.check_integrity()

    def step(self) -> None:
        """Plan as far ahead as allowed, then commit one step."""
        while len(self.tickets) < self.depth:
            self.run_draft()
            self.bring()
            if self.engine.media.to_encode:
                if self.tickets:
                    break
                self.encode()
            batch = self.engine.plan()
            self.engine.check_integrity()
            if batch is None:
                if self.engine.adapters.to_load:
                    continue
                if self.engine.media.to_encode and not self.tickets:
                    continue
                break
            self.tickets.append(self.executor.submit(batch, self.engine.adjustments()))
        assert self.tickets, "livelock: there is work, but nothing to plan and nothing in flight"
        result = self.executor.collect(self.tickets.popleft())
        self.take(self.engine.commit(result, self.seconds()))
        self.engine.check_integrity()

    def bring(self) -> None:
        """Write the adapters that requests wait for into their slots."""
        for adapter in [*self.engine.adapters.to_load]:
            self.executor.write_adapter(adapter.slot, self.copies[adapter])
            self.engine.adapters.mark_loaded(adapter)

    def encode(self) -> None:
        """Write the rows of one waiting image, which are not those of any other."""
        image = self.engine.media.to_encode[0]
        assert image.tile is not None and image.slots is not None
        self.executor.write_embeddings(image.slots, b"".join(rows_of(image.tile)))
        self.encoded += 1
        self.engine.media.mark_ready(image)

    def load(
        self, name: str, matrices: list[AdapterMatrix], in_place: bool = False, kept: bool = False
    ) -> None:
        """Load an adapter as `mlcc.model.driver.Driver` does. kept: it may be swapped out of its
        slot."""
        adapters = self.engine.adapters
        adapters.check_name(name, in_place)
        busy, replaced = self.engine.busy_adapters, adapters.names.get(name)
        adapter = adapters.reserve(1, kept, busy, replaced)
        if adapter.slot >= 0:
            self.executor.write_adapter(adapter.slot, matrices)
        self.copies[adapter] = matrices
        adapters.put(name, adapter)
        self.engine.check_integrity()

    def run_draft(self) -> None:
        """Run the draft model as far as the engine plans it."""
        while self.draft is not None and (batch := self.engine.plan_draft()) is not None:
            result, took = self.draft.collect(self.draft.submit(batch)), self.seconds()
            self.engine.commit_draft(result, took and took / 10)

    def run(self, max_steps: int = 10_000) -> dict[str, Got]:
        while self.engine.has_work:
            self.step()
            max_steps -= 1
            assert max_steps, "no end in sight"
        assert not self.tickets
        assert self.engine.stats().pages_free == sum(self.engine.capacity.pools)
        return self.got

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            got = self.got[event.request_id]
            assert got.finished is None, f"an event after the end: {event}"
            if isinstance(event, TextDelta):
                got.text += event.text
                got.tokens += event.token_ids
                got.logprobs += event.logprobs
                got.token_logprobs += event.token_logprobs
                assert not event.prompt_logprobs or not (event.text or got.prompt or got.tokens)
                got.prompt += event.prompt_logprobs
            else:
                got.finished = event


def toy_driver(
    capacity: Capacity = SMALL,
    eos: Iterable[int] = (),
    tokenizer: Tokenizer | None = None,
    depth: int = 1,
    seed: int = 0,
    *,
    prefix_cache: bool = True,
    speculator: Speculator | None = None,
    draft: Executor | None = None,
) -> Driver:
    """draft: the executor of a draft model; with a capacity that has a multi-token-prediction layer
    that layer drafts."""
    draft_model: DraftModel | MtpLayer | None = None
    if draft is not None:
        draft_model = DraftModel(draft.capacity, capacity)
    elif capacity.layout.has_mtp:
        draft_model = MtpLayer(capacity)
    if draft_model is not None and speculator is None:
        speculator = Speculator(draft_model.open)
    engine = Engine(
        capacity, eos, tokenizer, seed=seed, prefix_cache=prefix_cache, speculator=speculator,
        draft=draft_model,
    )  # fmt: skip
    driver = Driver(engine, ToyExecutor(capacity), depth)
    driver.draft = driver.executor if capacity.layout.has_mtp else draft
    return driver
