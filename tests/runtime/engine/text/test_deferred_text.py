"""Text made by the output thread equals the text of the engine, piece by piece."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Engine, Event, Request, SamplingParams, TextDelta
from mlcc.engine.text.detokenizer import DeferredText, text_decides
from tests.runtime.engine.helpers.drive import small, toy_driver
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer

VOCAB = 64


class Pieces(ByteTokenizer):
    """A byte tokenizer that takes any token id, modulo its vocabulary."""

    def decode(self, ids: Sequence[int], /) -> str:
        return super().decode([i % self.vocab_size for i in ids])


def requests(draw: random.Random) -> list[Request]:
    """Some with stop strings, log-probabilities or special tokens that are shown."""
    found = []
    for i in range(12):
        sampling = SamplingParams(
            max_tokens=draw.randint(1, 30), seed=i, temperature=1,
            stop=draw.choice([(), ("ab",), ("\ufffd", "b")]),
            logprobs=draw.choice([None, None, 0]),
        )  # fmt: skip
        shown = draw.choice([(), ((0, "<call>"),)])
        prompt = [draw.randrange(VOCAB) for _ in range(draw.randint(1, 20))]
        found.append(Request(str(i), prompt, sampling, shown=shown))
    return found


def events_of(later: bool, seed: int) -> list[Event]:
    """The events of a run in which some requests are cancelled."""
    draw, capacity = random.Random(seed), small()
    engine = Engine(capacity, [5], Pieces(), defer_text=later)
    executor, texts, found = ToyExecutor(capacity), DeferredText(Pieces()), list[Event]()
    waiting = requests(draw)

    def take(events: list[Event]) -> None:
        if later:
            bare = [e for e in events if isinstance(e, TextDelta) and not e.token_logprobs]
            deciding = {r.id for r in asked if text_decides(r.sampling)}
            assert not any(e.text for e in bare if e.request_id not in deciding)
        found.extend(texts.add_text(events) if later else events)

    asked: list[Request] = []
    while waiting or engine.has_work:
        if waiting and draw.random() < 0.4:
            asked.append(waiting.pop())
            engine.add(asked[-1])
            texts.begin(asked[-1])
        if asked and draw.random() < 0.05:
            take(engine.cancel(draw.choice(asked).id))
        if (batch := engine.plan()) is not None:
            take(engine.commit(executor.collect(executor.submit(batch, engine.adjustments()))))
    return found


def test_events_are_the_same() -> None:
    text = ""
    for seed in range(12):
        ours, theirs = events_of(True, seed), events_of(False, seed)
        assert ours == theirs
        text += "".join(e.text for e in ours if isinstance(e, TextDelta))
    assert "€" in text, "of several tokens"
    assert "<call>" in text


def test_failed_requests_get_no_text() -> None:
    texts = DeferredText(ByteTokenizer())
    texts.begin(Request("a", [1], SamplingParams(max_tokens=3)))
    texts.clear()
    event = TextDelta("a", "", (12,), (0.0,))
    assert texts.add_text([event]) == [event]


def test_without_it_the_engine_writes() -> None:
    driver = toy_driver(tokenizer=Pieces())
    driver.add(Request("a", [1, 2], SamplingParams(max_tokens=20, seed=3, temperature=1)))
    assert driver.run()["a"].text
