"""The pump between an engine and an executor, in one thread. Decides nothing about requests."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from mlcc.engine.batch.batch import Result
from mlcc.engine.engine import Engine
from mlcc.engine.events import Event
from mlcc.model.lora_loader import AdapterLoader
from mlcc.model.model import Model


class Driver:
    """Keeps `depth` steps in flight. A step that fails ends all requests, without events.

    defer_text: events are without text where it decides nothing (`mlcc.engine.text.output_text`).
    """

    def __init__(self, model: Model, defer_text: bool = False) -> None:
        self.engine: Engine = model.new_engine(defer_text)
        self._executor = model.executor
        self._adapters = AdapterLoader(self.engine, model.executor, model.adapters)
        self._depth = model.depth
        self._draft = model.draft
        self._tickets: deque[tuple[int, float]] = deque()
        """Of each step in flight, and when it was submitted."""
        self._done = 0.0
        """When the device last ended a step."""

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return self.engine.has_work

    def load_adapter(self, name: str, folder: Path, in_place: bool = False) -> None:
        """Read a PEFT folder into a free slot, between two steps. What fails changes nothing.

        Raises ArtifactError, UnsupportedError, InvalidRequestError, CapacityError, DeviceError.
        """
        self._adapters.load(name, folder, in_place)

    def unload_adapter(self, name: str) -> None:
        """Nobody new uses it; who does goes on. Raises InvalidRequestError for a name of none."""
        self._adapters.unload(name)

    def step(self) -> list[Event]:
        """Plan what can be planned and commit the oldest step.

        Raises what the executor raises (DeviceError, CapacityError). Whatever it is, a bug or
        Ctrl-C too, a planned step may be without its ticket by then, so everything is forgotten.
        """
        try:
            return self._step()
        except BaseException:
            self.forget()
            raise

    def drain(self) -> list[Event]:
        """Commit the steps in flight and plan no more: requests move between steps. Raises what
        `step` raises."""
        events: list[Event] = []
        try:
            while self._tickets:
                events += self._commit()
        except BaseException:
            self.forget()
            raise
        return events

    def _step(self) -> list[Event]:
        while len(self._tickets) < self._depth:
            self._guess()
            self._adapters.bring()
            batch = self.engine.plan(self._executor.step_buffer())
            if batch is None:
                if self._adapters.waiting:
                    continue
                break
            adjustments = self.engine.adjustments(self._executor.adjustments_buffer)
            now = perf_counter()  # before: a CPU computes while it is told
            self._tickets.append((self._executor.submit(batch, adjustments), now))
        if not self._tickets:
            if self.engine.has_work:
                raise RuntimeError("the engine has requests and plans nothing; this is a bug")
            return []
        return self._commit()

    def _commit(self) -> list[Event]:
        ticket, submitted = self._tickets.popleft()
        result: Result = self._executor.collect(ticket)
        began, self._done = max(submitted, self._done), perf_counter()
        return self.engine.commit(result, self._done - began)

    def _guess(self) -> None:
        """Run the draft model, if there is one, as far as the engine wants it."""
        if (draft := self._draft) is None:
            return
        while (batch := self.engine.plan_draft(draft.step_buffer())) is not None:
            began = perf_counter()
            result = draft.collect(draft.submit(batch))
            self.engine.commit_draft(result, perf_counter() - began)

    def forget(self) -> None:
        """Leave nothing in flight on either side, so that a device that recovers can go on."""
        try:
            while self._tickets:
                with suppress(Exception):  # what is being raised came first
                    self._executor.collect(self._tickets.popleft()[0])
        finally:  # also if a second Ctrl-C ends the waiting
            self._tickets.clear()
            self.engine.fail()
