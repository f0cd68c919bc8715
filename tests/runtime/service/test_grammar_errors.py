"""What the engine's thread hears of a grammar that was compiled in another."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from mlcc.errors import DeviceLostError, InvalidRequestError, MlccError
from mlcc.worker.worker import _outcome


def outcome(**fields: Any) -> Any:
    future: Future[Any] = Future()
    if "error" in fields:
        future.set_exception(fields["error"])
    else:
        future.set_result(fields["result"])
    return _outcome(future)


def test_a_grammar_or_the_reason_why_there_is_none() -> None:
    grammar, refused = object(), InvalidRequestError("too large")
    assert outcome(result=grammar) is grammar
    assert outcome(error=refused) is refused
    found = outcome(error=KeyError("secret"))
    assert isinstance(found, MlccError) and "secret" not in found.message
    with pytest.raises(DeviceLostError):  # it ends the engine, not one request
        outcome(error=DeviceLostError("gone"))
