"""Tokens that a model's generation_config.json forbids, as transformers' logits processors have
them, in a batch, in streams and with speculation."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mlcc.api.openai.requests import recommended, to_params
from mlcc.api.schema.chat_fields import SAMPLING
from mlcc.artifact import generation_config as fields
from mlcc.artifact.generation_config import tokens_never_sampled, unused
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.request import SamplingParams
from mlcc.engine.sampling.logits_processor import BANNED, LogitsProcessor

VOCAB, END = 12, 11


class Rows:
    """Receives what a processor writes."""

    bias: dict[int, float]

    def row(self, row: int, penalties: Any, **lists: Any) -> None:
        self.bias = dict(lists["bias"])


def banned(config: dict[str, Any], prompt: list[int], output: list[int]) -> set[int]:
    """Tokens that the engine forbids after an output."""
    params = to_params({}, tokens_never_sampled(config, VOCAB, {END}))
    processor = LogitsProcessor(params, known := list(prompt), frozenset({END}))
    for token in output:
        known.append(token)
        processor.push(token)
    if not params.adjusts or not processor.applies_to(len(output)):
        return set()
    rows = Rows()
    processor.write(rows, 0, len(output), -1)  # type: ignore[arg-type]
    assert 3 * len(rows.bias) <= processor.max_words * 3 and set(rows.bias.values()) <= {BANNED}
    return set(rows.bias)


def right(config: dict[str, Any], prompt: list[int], output: list[int]) -> set[int]:
    """Those of transformers' logits processors."""
    torch = pytest.importorskip("torch")
    from transformers.generation import logits_process as of

    ids, scores = torch.tensor([prompt + output]), torch.zeros(1, VOCAB)
    made: list[Any] = []
    if size := config.get("no_repeat_ngram_size"):
        made.append(of.NoRepeatNGramLogitsProcessor(size))
    if words := config.get("bad_words_ids"):
        made.append(of.NoBadWordsLogitsProcessor(words, torch.tensor([END])))
    if tokens := config.get("suppress_tokens"):
        made.append(of.SuppressTokensLogitsProcessor(tokens))
    if first := config.get("begin_suppress_tokens"):
        made.append(of.SuppressTokensAtBeginLogitsProcessor(first, len(prompt)))
    for processor in made:
        scores = processor(ids, scores)
    return {i for i, score in enumerate(scores[0].tolist()) if score == float("-inf")}


CONFIGS: list[dict[str, Any]] = [
    {"suppress_tokens": [3, 5]},
    {"begin_suppress_tokens": [END, 2]},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"bad_words_ids": [[1], [END], [2, 3], [1, 2, 1]]},
    {"suppress_tokens": [0], "no_repeat_ngram_size": 2, "bad_words_ids": [[4, 4]]},
]


@pytest.mark.parametrize("config", CONFIGS, ids=[json.dumps(config) for config in CONFIGS])
def test_the_tokens_that_transformers_forbids(config: dict[str, Any]) -> None:
    chance = random.Random(1)
    for _ in range(25):
        prompt, output = ([chance.randrange(5) for _ in range(n)] for n in (4, chance.randrange(8)))
        assert banned(config, prompt, output) == right(config, prompt, output)


def test_a_request_adds_to_what_the_model_forbids() -> None:
    defaults = recommended({"top_k": 5}) | tokens_never_sampled(
        {"suppress_tokens": [3, 99], "bad_words_ids": [[4]]}, VOCAB, {END}
    )
    params = to_params({"bad_words": ((7,),), "logit_bias": ((3, 100.0), (5, 1.0))}, defaults)
    assert (params.suppress_tokens, params.bad_words, params.top_k) == ((3,), ((7,),), 5)
    rows = Rows()
    LogitsProcessor(params, [1], frozenset()).write(rows, 0, 0, -1)  # type: ignore[arg-type]
    assert rows.bias == {3: BANNED, 4: BANNED, 7: BANNED, 5: 1.0}


def test_drafts_and_tokens_in_flight_wait_where_all_tokens_must_be_known() -> None:
    def processor(**params: Any) -> LogitsProcessor:
        return LogitsProcessor(SamplingParams(**params), [1, 2], frozenset())

    assert not processor(no_repeat_ngram_size=2).supports_drafts
    assert processor(no_repeat_ngram_size=2).max_in_flight == 0
    assert processor(bad_words_ids=((1, 2),)).max_in_flight == 0
    assert processor(suppress_tokens=(1,)).max_in_flight == 1
    assert processor(suppress_tokens=(1,)).supports_drafts
    assert AdjustLayout(4, VOCAB).words > processor(no_repeat_ngram_size=1).max_words


def test_the_greedy_model_keeps_its_penalty() -> None:
    config = {"do_sample": False, "repetition_penalty": 1.2, "top_p": 0.5}
    assert recommended(config) == {"temperature": 0.0, "repetition_penalty": 1.2}


def test_every_field_of_transformers_is_followed_or_named() -> None:
    """Oracle: GenerationConfig's own list of fields. What changes no answer is listed."""
    transformers = pytest.importorskip("transformers")
    known = {name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")}
    followed = fields.SAMPLING | set(fields.FORBIDS) | fields._IDS | fields._NO_EFFECT
    named = {"max_length": 7, "num_beams": 4, "stop_strings": ["x"], "forced_eos_token_id": 2}
    for name in known - followed:
        line = next(iter(unused({name: named.get(name, 7)})))
        assert line.startswith(f"generation_config.json's '{name}' (")
    assert {row.name for row in SAMPLING if row.recommended} == fields.SAMPLING
    assert fields.SAMPLING | set(fields.FORBIDS) <= known
    assert list(unused({"num_beams": 1, "max_length": None, "transformers_version": "5"})) == []
    assert list(unused({"chat_format": "chatml", "max_new_tokens": 512})) == [
        "generation_config.json's 'chat_format' ('chatml') is not used",
        "generation_config.json's 'max_new_tokens' (512) is not used: send 'max_tokens' with each "
        "request",
    ]
    assert list(unused({"suppress_tokens": "all"})) == [
        "generation_config.json's 'suppress_tokens' is not valid, and is not used"
    ]
