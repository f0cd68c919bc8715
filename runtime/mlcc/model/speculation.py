"""Whether and how a model's answers are guessed ahead: what `--speculate` says, and who guesses.

The engine knows guesses alone (`mlcc.engine.spec_decode.speculator`); here they get their names.
"""

from __future__ import annotations

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.engine.spec_decode.ngram import Lookup
from mlcc.engine.spec_decode.speculator import LONGEST, OpenProposer, Speculator
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.limits import BOUNDS
from mlcc.util.frozen import dataclass

LOOKUP, DRAFT, OFF = "lookup", "draft", "off"


@dataclass(frozen=True)
class Speculation:
    """Where guesses come from, and how many of a sequence a step computes at most."""

    kind: str
    longest: int = LONGEST

    @classmethod
    def read(
        cls, text: str | None, draft: object = None, spelled: str = "--speculate"
    ) -> Speculation | None:
        """`lookup`, `lookup:12`, `draft:4` or `off`; None = `draft` if there is a draft, or off.

        draft: a draft model, where one is given. Raises InvalidRequestError for anything else.
        """
        if text is None:
            return None if draft is None else cls(DRAFT)
        kind, colon, number = text.partition(":")
        if kind not in (LOOKUP, DRAFT, OFF) or (colon and kind == OFF):
            raise _wrong(
                f"{spelled} is {text[:40]!a}; it must be lookup, draft or off, and may say how many"
                " tokens are guessed at most (lookup:12)"
            )
        if kind == DRAFT and draft is None:
            raise _wrong(
                f"{spelled} {DRAFT} needs the model that guesses; add --draft ARTIFACT, or type "
                f"{spelled} {LOOKUP}"
            )
        if kind != DRAFT and draft is not None:
            raise _wrong(f"--draft is for {spelled} {DRAFT}; leave out one of them")
        if kind == OFF:
            return None
        bound = BOUNDS["draft_tokens"]
        longest = int(number) if number.isdecimal() and len(number) < 10 else number or LONGEST
        return cls(kind, int(bound.check(longest, f"{spelled} {text[:40]}: the number")))

    def check(self, capacity: Capacity) -> None:
        """Raises UnsupportedError where a step has a single row."""
        if capacity.max_rows < 2:
            raise UnsupportedError(
                "speculation computes several rows of a sequence in a step, and this model runs "
                "with one (--max-rows 1); compile it again with `mlcc compile --max-rows 16`, or "
                "leave out --speculate"
            )

    def speculator(self, capacity: Capacity, draft: DraftModel | None = None) -> Speculator:
        """For an engine of this capacity. Raises UnsupportedError where a step has a single row."""
        self.check(capacity)
        opened: OpenProposer = Lookup.of if draft is None else draft.open
        return Speculator(opened, self.longest)


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="bad_options", param="speculate")
