"""An export that fails ends its request; a device that is lost ends the engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlcc.engine import Request, SamplingParams
from mlcc.engine.events import TextDelta
from mlcc.engine.migration import Identity
from mlcc.errors import INTERNAL, DeviceError, DeviceLostError
from mlcc.model.encoder_driver import driver_of
from mlcc.model.model import Model
from mlcc.worker.messages import Events, Exported, Refused, Reply
from mlcc.worker.migration import Migrator
from tests.helpers.toy.toy_model import CAPACITY, SlowToy, toy_text


class Unreadable(SlowToy):
    """A device whose pages are not read."""

    error: Exception | None = None

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        if self.error is not None:
            raise self.error
        return super().read_pages(group, ids)


def replies(error: Exception | None) -> list[Reply]:
    """The replies for a request with its first token; afterwards the engine has none."""
    device = Unreadable(CAPACITY)
    device.error = error
    model = Model(toy_text(), device, identity=Identity("toy", "toy", "toy"))
    driver = driver_of(model, defer_text=True)
    migrator = Migrator(model, driver)
    migrator.migrating.add("a")
    driver.engine.add(Request("a", [3, 4, 5], SamplingParams(max_tokens=9, ignore_eos=True)))
    while True:
        events = driver.step()
        assert [*migrator.exports([])] == [], "it has no token yet"
        if any(isinstance(event, TextDelta) and event.token_ids for event in events):
            break
    found = [*migrator.exports(events)]
    assert not driver.engine.has_work
    return found


def test_what_each_failure_ends() -> None:
    assert [type(reply) for reply in replies(None)] == [Events, Exported, Events]
    own = DeviceError("the copy failed")
    _, refused, ended = replies(own)
    assert refused == Refused("a", own) and isinstance(ended, Events)
    _, refused, _ = replies(KeyError("a bug"))
    assert isinstance(refused, Refused) and refused.error.message == INTERNAL
    with pytest.raises(DeviceLostError, match="gone"):
        replies(DeviceLostError("the device is gone"))
