"""The rules of Whisper's timestamps (Radford et al., 2022) as a grammar, which the engine applies
as masks. Text comes in segments, each between two timestamps that do not fall; that all timestamps
together outweigh text is the device's part (`mlcc.engine.batch.adjust_tables`)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache

from mlcc.artifact.schema import AudioInfo
from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import UnsupportedError

TIMESTAMPS = "timestamps"
"""The text of the structure that asks for it."""


class TranscriptGrammars:
    """The grammars of a model that hears: only transcripts."""

    def __init__(self, info: AudioInfo, vocab_size: int) -> None:
        self._info, self._vocab_size = info, vocab_size
        self.mask = cache(self._mask)

    def check(self, structure: Structure) -> None:
        """Raises UnsupportedError for anything but TIMESTAMPS."""
        if structure.text != TIMESTAMPS:
            raise UnsupportedError(
                "a model that transcribes writes what it hears, and no JSON; leave the format out",
                param=structure.field or None,
            )

    def open(self, structure: Structure) -> TimestampGrammar:
        """A grammar for one window. Raises what `check` raises."""
        self.check(structure)
        return TimestampGrammar(self._info, self)

    def _mask(self, text: tuple[int, int], times: tuple[int, int]) -> array[int]:
        """Allows tokens of these two ranges, but for the one that turns timestamps off."""
        bits = sum((1 << max(first, end)) - (1 << first) for first, end in (text, times))
        bits &= ~(1 << self._info.no_timestamps_id)
        words = array("i")
        words.frombytes(bits.to_bytes(-(-self._vocab_size // MASK_BITS) * 4, "little"))
        return words

    @property
    def end(self) -> int:
        """The token behind the last timestamp."""
        return self._vocab_size


class TimestampGrammar:
    """The state of one window's transcript."""

    ended = failed = dead_end = False

    def __init__(self, info: AudioInfo, grammars: TranscriptGrammars) -> None:
        self._info, self._grammars = info, grammars
        self._tokens: list[int] = []
        self._last = -1
        """The last timestamp; -1 = none."""

    def _is_time(self, back: int) -> bool:
        """Whether the token so far back is a timestamp."""
        return self._tokens[-back] >= self._info.first_timestamp

    def allowed(self) -> array[int]:
        """The mask of the next token."""
        info, mask = self._info, self._grammars.mask
        first, end = info.first_timestamp, self._grammars.end
        if not self._tokens:
            latest = end if info.latest_start < 0 else first + info.latest_start + 1
            return mask((0, 0), (first, min(latest, end)))
        if not self._is_time(1):
            return mask((0, first), (max(first, self._last + 1), end))
        if len(self._tokens) < 2 or self._is_time(2):  # a segment has begun
            return mask((0, first), (0, 0))
        # a segment has ended: the next one begins, or nothing follows
        return mask((min(info.start_id - 1, first), first), (self._last, end))

    def accept(self, token: int) -> None:
        """Append a sampled token."""
        self._tokens.append(token)
        if token >= self._info.first_timestamp:
            self._last = token

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int] | None]:
        """None: nothing is drafted."""
        return ()

    def forced(self) -> Sequence[int]:
        """None."""
        return ()
