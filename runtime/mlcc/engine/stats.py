"""What an engine tells of itself: for metrics, /health and tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """A look at the engine: what it holds now, then what it has done since it was made."""

    waiting: int
    running: int
    in_flight: int
    """Steps planned and not committed."""
    pages: int
    pages_free: int
    steps: int
    """Steps committed."""
    requests: int
    computed_tokens: int
    """Tokens run by planned steps: prompts, answers and recomputation."""
    sampled_tokens: int
    """Tokens of answers; those sampled in vain after an end are not counted."""
    preemptions: int
    cached_tokens: int
    """Tokens of prompts that were found in the prefix cache instead of being run."""
    drafted_tokens: int
    """Guesses of speculation that were computed."""
    accepted_tokens: int
    """Those of them that were right."""
    pages_kept: int
    """Free pages that the prefix cache would find something in."""
