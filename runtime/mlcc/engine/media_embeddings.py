"""Rows of images and sounds on the device: which are there, which the driver has to make, and their
names.

The tokens of an image or a sound stand for rows that a tower computes. They are written to slots of
the executor (`Executor.write_embeddings`) before the chunk of the prompt that reads them, and are
not needed afterwards; they stay until others need their slots, so that a preempted request, or
another one with the same image or sound, finds them.

In the prefix cache the tokens of a tile have ids of their own, which no other image has: one for
each row, from the vocabulary's end on. Tiles have the same ids if they have the same pixels and
come from the same tenant with the same salt.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

from mlcc.engine.batch.batch import int32
from mlcc.engine.request import AudioClip, AudioWindow, ImageTile, Request
from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError

MOST_KNOWN = 1 << 16
"""Tiles whose ids are remembered once no request uses them."""
_LAST_ID = 2**31 - 1


@dataclass(eq=False, slots=True)
class MediaRows:
    """The rows of one tile, or of a clip or a window of sound."""

    rows: int
    first_id: int
    """Id of its first token in the prefix cache."""
    lines: int = 1
    """Runs of its tokens: see `ImageTile.lines`."""
    tile: ImageTile | AudioClip | AudioWindow | None = None
    """Its pixels, or the features of a clip or a window of sound; None = no unfinished request has
    it."""
    users: int = 0
    """Unfinished requests."""
    slots: array[int] | None = None
    """Where its rows are, or will be once the driver has made them."""
    ready: bool = False
    step: int = -1
    """The last step that was planned with it."""


class MediaSpan(NamedTuple):
    """A tile or a clip of sound in a prompt: tokens start .. end. A window of sound stands for no
    token: every token of the sequence attends to its rows."""

    start: int
    end: int
    media: MediaRows
    columns: int = 1
    """Of its rows' grid; 0 = a clip of sound, whose rows have the positions of text."""

    @property
    def is_source(self) -> bool:
        """Whether it is a window of sound."""
        return self.start == self.end

    @property
    def saved(self) -> int:
        """Positions that M-RoPE saves: a tile takes as many as its longer side has rows."""
        rows = self.end - self.start
        if not rows or not self.columns:
            return 0
        return rows - max(self.columns, rows // self.columns)


def _columns(tile: ImageTile | AudioClip) -> int:
    """Columns of a tile's grid of rows, whose cells are squares of pixels; of a clip 0."""
    if isinstance(tile, AudioClip):
        return 0
    if tile.packing is not None:
        return tile.rows  # no such model has positions in rows and columns
    if tile.lines > 1:
        return tile.rows // tile.lines
    return max(1, tile.width // max(1, isqrt(tile.height * tile.width // tile.rows)))


def media_columns(spans: Sequence[MediaSpan], start: int, count: int) -> dict[str, array[int]]:
    """The further columns of a sequence's tokens from `start` on, `count` of them."""
    if spans[0].is_source:
        assert spans[0].media.slots is not None
        return {"source_row": spans[0].media.slots[:1] * count}
    visible = int32(range(start, start + count))
    time, row, column = visible[:], visible[:], visible[:]
    saved, end = 0, start + count
    for span in spans:
        first, last = max(span.start, start), min(span.end, end)
        origin = span.start - saved
        if first < last and span.columns:
            inside, own = (
                range(first - span.start, last - span.start),
                slice(first - start, last - start),
            )
            visible[own] = int32([span.end - 1]) * (last - first)
            time[own] = int32([origin]) * (last - first)
            row[own] = int32([origin + i // span.columns for i in inside])
            column[own] = int32([origin + i % span.columns for i in inside])
        saved += span.saved
        after = max(span.end, start)
        if after < end:
            later = int32(range(after - saved, end - saved))
            for places in (time, row, column):
                places[after - start :] = later
    return {
        "visible_until": visible, "position_t": time, "position_h": row, "position_w": column
    }  # fmt: skip


class MediaEmbeddings:
    """Images and sounds of one engine. slots: rows that fit the device at once; 0 = the model reads
    text only. whole_within: tokens of a step, if the model sees an image both ways, so that all
    its tokens have to be in one step; 0 = an image may be cut. window_rows: rows of a window of
    sound, each request's own; 0 = the model hears nothing."""

    def __init__(
        self, slots: int, vocab_size: int, whole_within: int = 0, window_rows: int = 0
    ) -> None:
        self.count = slots
        self._window_rows, self._hears = window_rows, bool(window_rows)
        self._whole_within = whole_within
        self.to_encode: list[MediaRows] = []
        """Those that the driver has to make and write to their slots, and then to `mark_ready`."""
        self._vocab_size = vocab_size
        self._next_id = vocab_size
        self._free = list(range(slots))[::-1]
        self._known: OrderedDict[tuple[bytes, object], MediaRows] = OrderedDict()
        """By pixels and scope, the least recently used first."""
        self.step = 0
        """The step being planned: images used from its beginning on stay where they are until the
        next one is."""

    def join(self, request: Request) -> tuple[MediaSpan, ...]:
        """The tiles of a new request. Raises the errors of `check`, and CapacityError after two
        thousand million rows."""
        self.check(request)
        spans = [
            MediaSpan(
                tile.start, tile.start + tile.tokens, self._of(tile, request.scope), _columns(tile)
            )
            for tile in request.media
        ]
        if request.audio is not None:
            spans.append(MediaSpan(0, 0, self._of(request.audio, request.scope)))
        for span in spans:
            span.media.users += 1
        return tuple(spans)

    def check(self, request: Request) -> None:
        """Raise UnsupportedError if the model reads no images, CapacityError for a tile with more
        rows than slots, InvalidRequestError for tiles that do not fit the prompt."""
        if (request.audio is None) == self._hears:
            raise UnsupportedError(
                "this model transcribes sound and answers no prompt of text; POST the file to "
                "/v1/audio/transcriptions, or type mlcc transcribe FILE"
                if self._hears
                else "this model reads text only: it has no audio tower; load a Whisper to "
                "transcribe sound",
                code="unsupported_content_part",
            )
        if self._hears and request.audio is not None and request.audio.rows != self._window_rows:
            raise InvalidRequestError(
                f"a window of {request.audio.rows} rows, and the model reads {self._window_rows}",
                param="audio",
            )
        if request.media and not self.count:
            raise UnsupportedError(
                "this engine reads text only: the model has no tower for images or sound, or "
                "nothing runs one here; send the request without them",
                param="messages",
                code="unsupported_content_part",
            )
        end, most = 0, self.count
        if self._whole_within:
            most = min(most, self._whole_within)
        for tile in request.media:
            what = "sound" if isinstance(tile, AudioClip) else "an image"
            if not 0 < tile.rows <= most:
                raise CapacityError(
                    f"{what} of {tile.rows} tokens, and a step reads at most {most}; send "
                    "a smaller one, or compile the model with a larger --max-step-tokens"
                )
            if not end <= tile.start <= len(request.prompt) - tile.tokens:
                raise InvalidRequestError(
                    f"{what} at token {tile.start} of {len(request.prompt)} overlaps another or "
                    "the prompt's end",
                    param="media",
                )
            end = tile.start + tile.tokens

    def _of(self, tile: ImageTile | AudioClip | AudioWindow, scope: object) -> MediaRows:
        media = self._known.get((tile.key, scope))
        if media is None or media.rows != tile.rows:
            # no token names a window's rows
            ids = 0 if isinstance(tile, AudioWindow) else tile.tokens
            lines = tile.lines if isinstance(tile, ImageTile) else 1
            if self._next_id + ids > _LAST_ID:
                raise CapacityError("the ids of images and sounds are used up; restart the server")
            media = MediaRows(tile.rows, self._next_id, lines)
            self._next_id += ids
            self._known[tile.key, scope] = media
            self._forget()
        self._known.move_to_end((tile.key, scope))
        media.tile = media.tile or tile
        return media

    def _forget(self) -> None:
        """Keep the number of names within bounds."""
        over = len(self._known) - MOST_KNOWN
        unused = [key for key, media in self._known.items() if not media.users][: max(0, over)]
        for key in unused:
            self._evict(self._known.pop(key))

    def leave(self, spans: Iterable[MediaSpan]) -> None:
        """A request has ended."""
        for media in (span.media for span in spans):
            media.users -= 1
            if not media.users:
                media.tile = None
                if media in self.to_encode:
                    self.to_encode.remove(media)
                    self._evict(media)

    def hold(self, spans: Sequence[MediaSpan]) -> None:
        """A running sequence's window of sound stays where it is in this step."""
        for span in spans:
            if span.is_source and span.media.slots is not None:
                span.media.step = self.step

    def ready_tokens(self, spans: Sequence[MediaSpan], start: int, count: int) -> int:
        """How many of the `count` tokens from `start` on may be computed now. Those of images may
        once their rows are on the device; images that are not there are queued in `to_encode`, as
        many as fit, and none of these tokens is computed before they are there."""
        end = start + self.whole(spans, start, count)
        mine = [s for s in spans if (s.end > start and s.start < end) or s.is_source]
        for i, span in enumerate(mine):
            if not self._has_slots(span.media):
                end, mine = span.start, mine[:i]  # a window of sound begins before all tokens
                break
        return max(0, end - start) if all(span.media.ready for span in mine) else 0

    def whole(self, spans: Sequence[MediaSpan], start: int, count: int) -> int:
        """`count` tokens from `start` on, or fewer, so that they end within no image that is seen
        both ways."""
        if self._whole_within:
            for span in spans:
                if span.start < start + count < span.end:
                    return max(0, span.start - start)
        return count

    def rest_of_image(self, spans: Sequence[MediaSpan], start: int) -> int:
        """Tokens from `start` to the end of an image that is seen both ways and that a step has to
        compute whole; 0 = none begins there."""
        if not self._whole_within:
            return 0
        return next((span.end - start for span in spans if span.start <= start < span.end), 0)

    def _has_slots(self, media: MediaRows) -> bool:
        """Whether the image is on the device, or has been queued."""
        if media.slots is None:
            slots = self._allocate(media.rows)
            if slots is None:
                return False
            media.slots = slots
            self.to_encode.append(media)
        media.step = self.step
        return True

    def _allocate(self, rows: int) -> array[int] | None:
        """Free slots, of images that neither this step nor the driver needs; None = too few."""
        idle = (i for i in self._known.values() if i.ready and i.step != self.step)
        for media in sorted(idle, key=lambda media: media.step):
            if len(self._free) >= rows:
                break
            self._evict(media)
        if len(self._free) < rows:
            return None
        slots = int32(sorted(self._free[len(self._free) - rows :]))
        del self._free[len(self._free) - rows :]
        return slots

    def _evict(self, media: MediaRows) -> None:
        if media.slots is not None:
            self._free.extend(reversed(media.slots))
        media.slots, media.ready = None, False

    def mark_ready(self, media: MediaRows) -> None:
        """The image's rows are in its slots."""
        self.to_encode.remove(media)
        media.ready = True

    def reset(self) -> None:
        """The device's memory may hold anything: make every image again."""
        self.to_encode.clear()
        for media in self._known.values():
            self._evict(media)

    def placed(self, tokens: array[int], spans: Sequence[MediaSpan], start: int) -> array[int]:
        """Tokens of a sequence from `start` on, as a step has them: those of images name slots."""
        found, end = tokens[:], start + len(tokens)
        for span in spans:
            length = span.media.rows // span.media.lines
            for line in range(span.media.lines):
                begin, above = span.start + line * (length + 1), line * length
                first, last = max(begin, start), min(begin + length, end)
                if first < last:
                    assert span.media.slots is not None
                    slots = span.media.slots[above + first - begin : above + last - begin]
                    found[first - start : last - start] = int32(
                        [self._vocab_size + slot for slot in slots]
                    )
        return found

    @staticmethod
    def keys(tokens: array[int], spans: Sequence[MediaSpan]) -> array[int]:
        """Tokens of a sequence as the prefix cache has them: those of images are the image's."""
        found = tokens[:]
        for start, end, media, _ in spans:
            if start >= len(found):
                break
            if start == end:  # a window of sound, which the scope names
                continue
            ids = range(media.first_id, media.first_id + end - start)
            found[start:end] = int32(ids[: len(found) - start])
        return found

    def check_integrity(self, users: Iterable[MediaSpan]) -> None:
        """Raise AssertionError unless each slot is free or one image's, and users match."""
        counts: dict[MediaRows, int] = {}
        for span in users:
            counts[span.media] = counts.get(span.media, 0) + 1
        known = list(self._known.values())
        held = [slot for media in known for slot in media.slots or ()]
        if sorted([*self._free, *held]) != list(range(self.count)):
            raise AssertionError("slots of rows are lost or held twice")
        if any(media.users != counts.get(media, 0) for media in known):
            raise AssertionError("users of rows do not match the live requests")
        if any((i.slots is not None) != (i.ready or i in self.to_encode) for i in known):
            raise AssertionError("rows are marked ready that are not on the device")
