"""The engine loop: plans steps, submits them to the executor and commits their results.

A request that makes a step fail, for whatever reason, ends alone (`Engine.recover`).

Single-threaded. All decisions about requests are the engine's.
"""

from __future__ import annotations

import traceback
from collections import deque
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from mlcc.engine.batch.batch import Result
from mlcc.engine.engine import Engine
from mlcc.engine.events import Event, Finished
from mlcc.errors import DeviceLostError, UnsupportedError, public_error
from mlcc.lora.loader import AdapterLoader
from mlcc.model.alignment import token_rows
from mlcc.model.model import Model
from mlcc.util.panics import is_panic


class Driver:
    """Keeps `depth` steps in flight. A failed step ends the request that is the cause; a lost
    device ends all requests without events.

    defer_text: events carry no text unless the engine needs it (`mlcc.engine.text.detokenizer`).
    """

    def __init__(self, model: Model, defer_text: bool = False) -> None:
        self.engine: Engine = model.new_engine(defer_text)
        self.engine.times.clock = perf_counter
        self._executor = model.executor
        self._adapters = AdapterLoader(self.engine, model.executor, model.adapters)
        self._tower, self._audio = model.tower, model.text.audio
        self._depth = model.executor.depth
        self._draft = model.executor if model.drafts_itself else model.draft
        self._tickets: deque[tuple[int, float]] = deque()
        """Ticket and submission time of each step in flight."""
        self._planning = False
        """Whether the next step is being planned, not yet submitted."""
        self._done = 0.0
        """When the device last completed a step."""

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return self.engine.has_work

    def load_adapter(self, name: str, folder: Path, in_place: bool = False) -> None:
        """Load a PEFT folder into a free slot, between two steps. A failure changes nothing.

        Raises ArtifactError, UnsupportedError, InvalidRequestError, CapacityError, DeviceError.
        """
        self._adapters.load(name, folder, in_place)

    def unload_adapter(self, name: str) -> None:
        """Refuse the adapter to new requests; running ones finish with it. Raises
        InvalidRequestError for an unknown name."""
        self._adapters.unload(name)

    def step(self) -> list[Event]:
        """Plan steps up to the depth and commit the oldest one. If that fails, the requests are
        computed again, and the one that is the cause ends with "error" in one of the next steps.

        Raises DeviceLostError, and Ctrl-C: a planned step may have no ticket yet, so all requests
        are dropped then.
        """
        try:
            return self._step()
        except BaseException as error:
            return self._recover(error)

    def drain(self) -> list[Event]:
        """Commit the steps in flight without planning more, so that requests can migrate. Raises
        what `step` raises."""
        events: list[Event] = []
        while self._tickets:
            try:
                events += self._commit()
            except BaseException as error:
                events += self._recover(error)
        while self.engine.alignments:
            events += self._align()
        return events

    def _recover(self, error: BaseException) -> list[Event]:
        """Compute the requests again after a failed step. Drops all of them and raises `error` if
        the device is lost or the program is interrupted."""
        if isinstance(error, DeviceLostError) or not (
            isinstance(error, Exception) or is_panic(error)
        ):
            self.forget()
            raise error
        try:
            self._discard()
            return _reported(self.engine.recover(public_error(error), self._planning))
        except BaseException:
            self.forget()
            raise

    def _step(self) -> list[Event]:
        while len(self._tickets) < self._depth:
            if self.engine.alignments:  # before pages are written
                if self._tickets:
                    break
                return self._align()
            self._planning = True
            self._run_draft()
            if self.engine.adapters.to_load:
                self._adapters.swap_in()
            if self.engine.media.to_encode:
                if self._tickets:  # rows are written between steps
                    break
                self._encode_media()
            batch = self.engine.plan(self._executor.step_buffer())
            if batch is None:
                if self._adapters.waiting or (self.engine.media.to_encode and not self._tickets):
                    continue
                break
            self._planning = False
            adjustments = self.engine.adjustments(self._executor.adjustments_buffer)
            now = perf_counter()  # before submit: a CPU computes within it
            self._tickets.append((self._executor.submit(batch, adjustments), now))
        if not self._tickets:
            self._planning = True
            if self.engine.has_work:
                raise RuntimeError("the engine has requests and plans nothing; this is a bug")
            return []
        return self._commit()

    def _commit(self) -> list[Event]:
        self._planning = False
        ticket, submitted = self._tickets.popleft()
        result: Result = self._executor.collect(ticket)
        began, self._done = max(submitted, self._done), perf_counter()
        return _reported(self.engine.commit(result, self._done - began))

    def _align(self) -> list[Event]:
        """Align the oldest answer that waits for it; only this answer fails if that does."""
        alignment = self.engine.alignments.popleft()
        try:
            return [alignment.done(token_rows(alignment, self._executor, self._audio))]
        except DeviceLostError:
            raise
        except Exception as error:
            return _reported([alignment.failed(public_error(error))])

    def _encode_media(self) -> None:
        """Make the rows of one waiting image; the next step runs before the next image."""
        waiting = self.engine.media.to_encode[0]
        if self._tower is None:
            raise UnsupportedError("the model was opened without its tower")
        tile: Any = waiting.tile  # of the tower's kind
        assert tile is not None and waiting.slots is not None
        if (rows := self._tower.encode(tile)) is None:
            return  # an image of several tiles, of which one was computed
        self._executor.write_embeddings(waiting.slots, rows)
        self.engine.media.mark_ready(waiting)

    def _run_draft(self) -> None:
        """Run the steps of the draft model that the engine plans, if there is a draft model."""
        if (draft := self._draft) is None:
            return
        while (batch := self.engine.plan_draft(draft.step_buffer())) is not None:
            began = perf_counter()
            result = draft.collect(draft.submit(batch))
            self.engine.commit_draft(result, perf_counter() - began)

    def forget(self) -> None:
        """Drop all steps and requests, so that the device can be used again if it recovers."""
        try:
            self._discard()
        finally:  # also if a second Ctrl-C interrupts the wait
            self._tickets.clear()
            self.engine.fail()

    def _discard(self) -> None:
        """Wait for the steps in flight, without their results."""
        while self._tickets:
            with suppress(Exception):  # the exception being handled takes precedence
                self._executor.collect(self._tickets.popleft()[0])


def _reported(events: list[Event]) -> list[Event]:
    """The events. Prints the bugs that ended requests, whose text no client gets."""
    for event in events:
        if isinstance(event, Finished) and event.error and event.error.__cause__:
            traceback.print_exception(event.error.__cause__)
    return events
