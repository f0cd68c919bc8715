"""Speculative decoding options: the value of `--speculate`, and the check of a draft model.

The algorithms are in `mlcc.engine.spec_decode`. A draft model must have the target's vocabulary:
the same tokens under the same ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.engine.spec_decode.mtp import MTP_DRAFT_TOKENS, Drafter, MtpLayer
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.engine.spec_decode.speculator import MAX_DRAFT_TOKENS, OpenProposer, Speculator
from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.limits import BOUNDS
from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from mlcc.artifact.folder import Artifact


LOOKUP, DRAFT, MTP, OFF = "lookup", "draft", "mtp", "off"


@fast_dataclass(frozen=True)
class Speculation:
    """The source of draft tokens, and the maximum number of them per sequence and step."""

    kind: str
    longest: int = MAX_DRAFT_TOKENS

    @classmethod
    def read(
        cls, text: str | None, draft: object = None, spelled: str = "--speculate"
    ) -> Speculation | None:
        """Parse `lookup`, `lookup:12`, `mtp:3`, `draft:4` or `off`; None = `draft` if there is a
        draft model, `mtp` if that is an EAGLE-3 head, else off.

        draft: the draft model or head, if one is given. Raises InvalidRequestError for anything
        else.
        """
        if text is None and draft is None:
            return None
        own = MTP if is_draft_head(draft) else DRAFT
        text = own if text is None else text
        kind, colon, number = text.partition(":")
        kind = own if kind == DRAFT else kind
        if kind not in (LOOKUP, DRAFT, MTP, OFF) or (colon and kind == OFF):
            raise _wrong(
                f"{spelled} is {text[:40]!a}; it must be lookup, mtp, draft or off, and may say "
                "how many draft tokens are made at most (lookup:12)"
            )
        if kind == DRAFT and draft is None:
            raise _wrong(
                f"{spelled} {DRAFT} needs a draft model; add --draft ARTIFACT, or type "
                f"{spelled} {LOOKUP}"
            )
        if kind != own and draft is not None:
            raise _wrong(f"--draft is for {spelled} {own}; leave out one of them")
        if kind == OFF:
            return None
        bound = BOUNDS["draft_tokens"]
        usual = MTP_DRAFT_TOKENS if kind == MTP else MAX_DRAFT_TOKENS
        longest = int(number) if number.isdecimal() and len(number) < 10 else number or usual
        return cls(kind, int(bound.check(longest, f"{spelled} {text[:40]}: the number")))

    def check(self, capacity: Capacity) -> None:
        """Raises UnsupportedError if a step has only one row of logits, or the model no layer of
        its own that drafts."""
        if self.kind == MTP:
            MtpLayer(capacity)
        if capacity.max_rows < 2:
            raise UnsupportedError(
                "speculation computes several rows of a sequence in a step, and this model runs "
                "with one (--max-rows 1); compile it again with `mlcc compile --max-rows 16`, or "
                "leave out --speculate"
            )

    def drafter(self, capacity: Capacity, draft: Capacity | None = None) -> Drafter | None:
        """The model that drafts, if one does; draft: the draft model's capacity. Raises
        UnsupportedError for a draft model that cannot share the pages."""
        if self.kind == MTP:
            return MtpLayer(capacity)
        return None if draft is None else DraftModel(draft, capacity)

    def speculator(self, capacity: Capacity, draft: Drafter | None = None) -> Speculator:
        """The speculator of an engine. Raises UnsupportedError as `check` does."""
        self.check(capacity)
        opened: OpenProposer = NgramProposer.of if draft is None else draft.open
        return Speculator(opened, self.longest)


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="bad_options", param="speculate")


def is_draft_head(folder: object) -> bool:
    """Whether a folder is an EAGLE-3 head as published: a part of a model, compiled with it."""
    try:
        config = json.loads(Path(str(folder), "config.json").read_text(encoding="utf-8"))
        names = config.get("architectures") or ()
        return "draft_vocab_size" in config or any("eagle" in str(name).lower() for name in names)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False


def check_draft(draft: Artifact, target: Artifact) -> None:
    """Raises UnsupportedError if the vocabularies differ, ArtifactError if a tokenizer is bad."""
    mine, its = target.manifest.model, draft.manifest.model
    if mine.vocab_size != its.vocab_size:
        raise UnsupportedError(
            f"--draft {draft.folder}: {its.name} has a vocabulary of {its.vocab_size} tokens and "
            f"{mine.name} one of {mine.vocab_size}; choose a smaller model of the same family"
        )
    if _vocabulary(draft.tokenizer_path) != _vocabulary(target.tokenizer_path):
        raise UnsupportedError(
            f"--draft {draft.folder}: {its.name} has another tokenizer than {mine.name}; choose a "
            "smaller model of the same family"
        )


def _vocabulary(path: Path) -> tuple[Any, Any]:
    """Token by id. Merges may differ: only the target model tokenizes text."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        added = {entry["id"]: entry["content"] for entry in found.get("added_tokens") or ()}
        return found["model"].get("vocab"), added
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{path}: is no tokenizer ({error})") from error
