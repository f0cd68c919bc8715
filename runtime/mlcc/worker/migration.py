"""Request migration (docs/internals/kv_transfer.md; experimental): exports requests after their
first token, and resumes requests of other engines. Runs in the engine thread, between steps."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence

from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.errors import (
    DeviceLostError,
    InvalidRequestError,
    MlccError,
    UnsupportedError,
    public_error,
)
from mlcc.model.driver import Driver
from mlcc.model.encoder_driver import EncoderDriver
from mlcc.model.kv_transfer import Imported, export_request, import_request
from mlcc.model.model import Model
from mlcc.worker.messages import Events, Exported, Refused, Reply


class Migrator:
    """Exports and resumes requests of one engine."""

    def __init__(self, model: Model, driver: Driver | EncoderDriver) -> None:
        self._model, self._driver = model, driver
        self.migrating: set[str] = set()
        """Requests to export after their first token."""

    def exports(self, events: Sequence[Event]) -> Iterator[Reply]:
        """Yield the replies for requests that have their first token among `events`. Raises
        DeviceLostError, and what a step in flight raises."""
        ended = {event.request_id for event in events if isinstance(event, Finished)}
        started = {e.request_id for e in events if isinstance(e, TextDelta) and e.token_ids}
        for request_id in sorted(self.migrating & started - ended):
            yield from self._export(request_id)
        self.migrating -= started | ended

    def resume(self, name: str, data: bytes) -> tuple[list[Event], Imported]:
        """Resume an exported request. Also returns the events of the steps in flight. Raises
        MlccError."""
        driver, model = self._driver, self._model
        if isinstance(driver, EncoderDriver) or model.identity is None:
            raise UnsupportedError("this model's pages go nowhere; ask it for the whole answer")
        events = driver.drain()
        moves, grammars = driver.engine.migration, model.text.grammars
        identity = model.identity
        return events, import_request(moves, model.executor, identity, data, grammars, name)

    def _export(self, request_id: str) -> Iterator[Reply]:
        driver, model = self._driver, self._model
        if isinstance(driver, EncoderDriver) or model.identity is None:
            yield Refused(request_id, UnsupportedError("this model's pages go nowhere"))
            return
        yield Events(driver.drain())
        moves = driver.engine.migration
        try:
            data = export_request(moves, model.executor, model.identity, request_id)
        except DeviceLostError:
            raise
        except InvalidRequestError:  # it ended in a step in flight
            return
        except MlccError as error:
            yield Refused(request_id, error)
        except Exception as error:
            traceback.print_exception(error)
            yield Refused(request_id, public_error(error))
        else:
            yield Exported(request_id, data)
        yield Events(driver.engine.cancel(request_id))
