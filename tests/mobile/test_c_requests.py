"""Requests through the C library, over the exact toy: each in a program of its own."""

from __future__ import annotations

import json

import pytest
from c_host import Act, Host, Name
TOY = "toy_model:open_toy"

from mlcc.embedded.c.codes import Code, Kind

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hi"}]


def chat(**fields: object) -> dict[str, object]:
    return {"messages": HELLO, "max_tokens": 12, "seed": 5, "temperature": 0, **fields}


def test_first(host: Host) -> None:
    engine = host.create(open=TOY)
    assert host.ready() == {"model": "toy", "context": 512, "max_batch": 4, "notes": []}
    status, body = host.ask(engine, CHAT, chat()).answer()
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"]
    events = list(host.ask(engine, CHAT, chat(stream=True)).each())
    print(events)
    host.order(Name.CLOSE, a=engine)
    host.released.get(timeout=10)
