"""Whether and how a model's answers are guessed ahead: what `--speculate` says, and who guesses.

The engine knows guesses alone (`mlcc.engine.spec_decode.speculator`); here they get their names.

Whether a compiled model may guess for another: the same tokens under the same numbers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.engine.spec_decode.speculator import LONGEST, OpenProposer, Speculator
from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.limits import BOUNDS
from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from mlcc.artifact.folder import Artifact


LOOKUP, DRAFT, OFF = "lookup", "draft", "off"


@fast_dataclass(frozen=True)
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
        opened: OpenProposer = NgramProposer.of if draft is None else draft.open
        return Speculator(opened, self.longest)


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="bad_options", param="speculate")


def check_draft(draft: Artifact, target: Artifact) -> None:
    """Raises UnsupportedError for a draft of other tokens, ArtifactError for one without any."""
    mine, its = target.manifest.model, draft.manifest.model
    if mine.vocab_size != its.vocab_size:
        raise UnsupportedError(
            f"--draft {draft.folder}: {its.name} has a vocabulary of {its.vocab_size} tokens and "
            f"{mine.name} one of {mine.vocab_size}; choose a smaller model of the same family"
        )
    if _words(draft.tokenizer_path) != _words(target.tokenizer_path):
        raise UnsupportedError(
            f"--draft {draft.folder}: {its.name} has another tokenizer than {mine.name}; choose a "
            "smaller model of the same family"
        )


def _words(path: Path) -> tuple[Any, Any]:
    """What each id is: how text is cut may differ, for the larger model's tokens alone count."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        added = {entry["id"]: entry["content"] for entry in found.get("added_tokens") or ()}
        return found["model"].get("vocab"), added
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{path}: is no tokenizer ({error})") from error
