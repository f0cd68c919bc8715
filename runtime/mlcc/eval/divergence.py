"""Measures how far a model is from a reference on the same tokens: the cost of quantization.

Perplexity alone misleads, since errors may help a text by chance. So the whole distribution of each
token is compared: the mean of KL(reference || model) in nats, and how often both agree on the
likeliest token. Both models step side by side, with a few rows of logits in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.errors import InvalidRequestError
from mlcc.eval.evaluation import ids_of, steps_of
from mlcc.model.model import Model
from mlcc.util.extras import require

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Logits = npt.NDArray[np.float32]


class Tells(Protocol):
    """An executor that returns logits; all except the toy do."""

    capacity: Capacity

    def logits(self, batch: Batch) -> Any:
        """Run a batch; returns its logits f32[r, vocab]."""
        ...


@dataclass(frozen=True)
class Divergence:
    """Means over all predicted tokens; each text starts with an empty context."""

    tokens: int
    perplexity: float
    reference_perplexity: float
    kl: float
    """Mean over tokens, in nats."""
    top1: float
    """Share of tokens, 0 .. 1, for which both have the same likeliest token."""

    @property
    def perplexity_change(self) -> float:
        """Relative change: 0.05 = five per cent above the reference's perplexity."""
        return self.perplexity / self.reference_perplexity - 1


def diverge(
    model: Model,
    reference: Model,
    texts: Sequence[str],
    progress: Callable[[int], None],
    note: Callable[[str], None],
) -> Divergence:
    """Compare two models on texts. `note` receives a message if texts were cut.

    Raises InvalidRequestError if their tokenizers differ, or nothing could be predicted;
    UnsupportedError without numpy.
    """
    require("numpy", "reference", "comparing logits")
    sums = _Sums()
    context = min(model.capacity.context, reference.capacity.context)
    cut = 0
    for index, text in enumerate(texts):
        ids = _same_ids(model, reference, text)
        cut += len(ids) > context
        _text(sums, model, reference, ids[:context])
        progress(index + 1)
    if not sums.tokens:
        raise InvalidRequestError("no text has two tokens, so there is nothing to predict")
    if cut:
        note(f"{cut} of {len(texts)} texts are scored up to the context of {context} tokens only")
    return sums.mean()


def _same_ids(model: Model, reference: Model, text: str) -> Sequence[int]:
    ids, theirs = (ids_of(m.text.tokenizer, text) for m in (model, reference))
    if ids != theirs or model.capacity.vocab_size != reference.capacity.vocab_size:
        raise InvalidRequestError(
            "the model and --against do not read the same tokens, so their probabilities cannot be "
            "compared; give --against an artifact of the same checkpoint, --quant f32 for example"
        )
    return ids


def _text(sums: _Sums, model: Model, reference: Model, ids: Sequence[int]) -> None:
    """Step both models, by as many rows as the smaller of their limits."""
    both = [cast(Tells, m.executor) for m in (model, reference)]
    rows = min(min(e.capacity.max_rows, e.capacity.max_step_tokens) for e in both)
    pairs = zip(*(steps_of(e.capacity, ids, rows) for e in both), strict=True)
    for (batch, targets), (same, _) in pairs:
        theirs = _array(both[1].logits(same)).copy()  # both may use the same buffer
        sums.add(_array(both[0].logits(batch)), theirs, targets)


def _array(logits: Any) -> Logits:
    import numpy as np

    return np.asarray(logits, np.float32)


@dataclass
class _Sums:
    tokens: int = 0
    surprise: float = 0.0
    reference_surprise: float = 0.0
    kl: float = 0.0
    same: int = 0

    def add(self, logits: Logits, reference: Logits, targets: Sequence[int]) -> None:
        """Add rows [r, vocab] of both models, and the tokens that followed."""
        import numpy as np

        rows, at = np.arange(len(targets)), list(targets)
        logp, theirs = _log_softmax(logits), _log_softmax(reference)
        self.tokens += len(at)
        self.surprise -= float(logp[rows, at].sum(dtype=np.float64))
        self.reference_surprise -= float(theirs[rows, at].sum(dtype=np.float64))
        self.same += int((logits.argmax(axis=1) == reference.argmax(axis=1)).sum())
        self.kl += float((np.exp(theirs) * (theirs - logp)).sum(dtype=np.float64))

    def mean(self) -> Divergence:
        n = self.tokens
        return Divergence(
            tokens=n,
            perplexity=math.exp(self.surprise / n),
            reference_perplexity=math.exp(self.reference_surprise / n),
            kl=max(0.0, self.kl / n),
            top1=self.same / n,
        )


def _log_softmax(logits: Logits) -> Logits:
    import numpy as np

    less = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(less).sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(less - np.log(total), np.float32)
