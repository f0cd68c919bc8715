"""How a tokenizer puts two texts together, for models that score pairs."""

from __future__ import annotations

from mlcc.errors import CheckpointError
from mlcc.util.panics import muted

Pair = tuple[tuple[int, ...], ...]


def pair_of(tokenizer: bytes) -> tuple[Pair, bool]:
    """The tokens before, between and behind two texts, and whether the second text's tokens are of
    another segment than the first's. Raises CheckpointError for a tokenizer that joins none."""
    from tokenizers import Tokenizer

    with muted():
        made = Tokenizer.from_str(tokenizer.decode())
    made.no_truncation()
    made.no_padding()
    pair = made.encode("a", "b")
    own = [i for i, sequence in enumerate(pair.sequence_ids) if sequence is not None]
    second = [i for i in own if pair.sequence_ids[i] == 1]
    first = [i for i in own if pair.sequence_ids[i] == 0]
    if not first or not second or first[0] > second[0]:
        raise CheckpointError("tokenizer.json: puts no two texts together; fetch it again")
    ids = tuple(pair.ids)
    parts = (ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :])
    return parts, pair.type_ids[second[0]] != pair.type_ids[first[0]]
