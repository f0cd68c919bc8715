"""The rules of timestamps, against transformers' logits processor over random outputs."""

from __future__ import annotations

import random
from array import array
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from mlcc.artifact.schema import AudioInfo
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import UnsupportedError
from mlcc.multimodal.audio.timestamps import TIMESTAMPS, TranscriptGrammars

END, START, PLAIN, VOCABULARY = 40, 41, 50, 90
INFO = AudioInfo(
    processor="whisper",
    bins=80,
    rows=38,
    start_id=START,
    no_timestamps_id=PLAIN,
    languages={},
    latest_start=5,
)


def bits(mask: array[int]) -> np.ndarray:
    words = np.frombuffer(mask.tobytes(), np.uint8)
    return np.unpackbits(words, bitorder="little")[:VOCABULARY].astype(bool)


def expected(tokens: list[int]) -> np.ndarray:
    """What transformers leaves, if no rule of sums applies: all tokens are as likely."""
    config = SimpleNamespace(
        no_timestamps_token_id=PLAIN, eos_token_id=END, max_initial_timestamp_index=5
    )
    rule = WhisperTimeStampLogitsProcessor(config, begin_index=1)
    scores = torch.zeros(1, VOCABULARY)
    scores[0, : PLAIN + 1] = 20.0  # text outweighs all timestamps together
    found = rule(torch.tensor([[START, *tokens]]), scores)
    return (found[0] > -torch.inf).numpy()


@pytest.mark.parametrize("seed", range(30))
def test_masks_are_those_of_transformers(seed: int) -> None:
    chance = random.Random(seed)
    grammar = TranscriptGrammars(INFO, VOCABULARY).open(Structure("grammar", TIMESTAMPS))
    tokens: list[int] = []
    for _ in range(25):
        allowed = bits(grammar.allowed())
        np.testing.assert_array_equal(allowed, expected(tokens), str(tokens))
        some = [t for t in np.flatnonzero(allowed).tolist() if t != END]
        if not some:
            break
        tokens.append(chance.choice(some))
        grammar.accept(tokens[-1])


def test_other_structures_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="writes what it hears"):
        TranscriptGrammars(INFO, VOCABULARY).check(
            Structure("json_schema", "{}", "response_format")
        )
