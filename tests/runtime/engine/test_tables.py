"""A step's layout as a value that is sent between processes."""

from __future__ import annotations

import pickle

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.engine.helpers.drive import SMALL


def test_a_capacity_in_use_goes_to_another_process() -> None:
    """A layout as the server's worker pickles it. In use it has packers, which are not pickled."""
    words = bytes(ManualSteps(SMALL).step({0: [1, 2]}).words)
    there = pickle.loads(pickle.dumps(SMALL))
    assert there == SMALL and hash(there.layout) == hash(SMALL.layout)
    assert bytes(ManualSteps(there).step({0: [1, 2]}).words) == words
    adjusting = AdjustLayout.of(SMALL.layout, SMALL.vocab_size)
    assert adjusting.rows.floats and pickle.loads(pickle.dumps(adjusting)).rows == adjusting.rows
