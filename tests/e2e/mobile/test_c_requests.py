"""Requests through the C library, over the exact toy: answers, cancelling, closing, memory
pressure."""

from __future__ import annotations

import json
from queue import Empty
from typing import Any

import pytest

from mlcc.embedded.c.codes import Code, Kind, Trim
from tests.helpers.mobile.c_host import Act, Call, Host, Name
from tests.runtime.multimodal.helpers.seeing_toy import data_url, picture

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hi"}]
TOY, SLOW, FULL = (f"tests.helpers.toy.toy_model:open_{name}toy" for name in ("", "slow_", "full_"))


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": HELLO, "max_tokens": 12, "seed": 5, "temperature": 0, **fields}


def long(**fields: Any) -> dict[str, Any]:
    """A request that runs until it is cancelled, nearly always: the toy ends by chance."""
    return chat(max_tokens=400, stream=True, **fields)


def text(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


def idle(host: Host, engine: int) -> bool:
    stats = host.stats(engine)["engine"]
    return stats["running"] == stats["waiting"] == 0


def ended(call: Call) -> int:
    return call.end().status


def test_an_answer_comes_whole_or_as_events(host: Host) -> None:
    engine = host.create(open=TOY)
    early = host.ask(engine, CHAT, chat())
    assert host.ready() == {"model": "toy", "context": 512, "max_batch": 4, "notes": []}
    status, body = early.answer()
    assert status == 200 and len(text(body)) == 12
    head, *events, end = host.ask(engine, CHAT, chat(stream=True)).each()
    assert head.json["content-type"].startswith("text/event-stream")
    lines = [event.data.decode() for event in events]
    assert all(line.startswith("data: {") and line.endswith("}\n\n") for line in lines[:-1])
    assert lines[-1] == "data: [DONE]\n\n" and end.data == b"" and end.status == Code.OK
    pieces = [json.loads(line[6:])["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
    assert "".join(pieces) == text(body)
    status, body = host.ask(engine, "/v1/nothing").answer()
    assert status == 404 and json.loads(body)["error"]["code"] == "not_found"


def test_events_of_one_step_come_in_one_batch(host: Host) -> None:
    engine = host.create(open=SLOW)
    host.ready()
    calls = [host.ask(engine, CHAT, long(seed=i, temperature=1)) for i in range(4)]
    batches: dict[int, set[int]] = {}
    for call in calls:
        for event in call.each():
            batches.setdefault(event.batch, set()).add(call.number)
    most = max(len(batch) for batch in batches.values())
    assert most == 4, f"no batch has events of all calls: {most}"


def test_polling(host: Host) -> None:
    engine = host.create(callbacks=0, open=TOY)
    assert host.order(Name.POLL, a=engine, c=60_000).c == Code.OK
    host.ready()
    assert host.order(Name.POLL, a=engine, c=0).c == 1  # MLCC_TIMEOUT
    call = host.ask(engine, CHAT, chat())
    waiting = host.begin(Name.POLL, a=engine, c=-1)
    assert waiting.result(60).c == Code.OK
    while call.events.empty() or host.stats(engine)["engine"]["running"]:
        host.order(Name.POLL, a=engine, c=100)
    host.order(Name.POLL, a=engine, c=100)
    assert call.answer()[0] == 200
    waiting = host.begin(Name.POLL, a=engine, c=-1)
    host.order(Name.CLOSE, a=engine)
    assert waiting.result(60).c == Code.CLOSED
    assert host.order(Name.POLL, a=engine, c=-1).c == Code.CLOSED
    with_callback = host.create(open=TOY)
    assert host.order(Name.POLL, a=with_callback, c=0).c == Code.BAD_ARGUMENT


def test_cancelling_from_outside_and_within_the_callback(host: Host) -> None:
    engine = host.create(open=SLOW)
    host.ready()
    call = host.ask(engine, CHAT, long())
    assert call.events.get(timeout=60).kind == Kind.HEAD
    host.order(Name.CANCEL, a=engine, b=call.number)
    last = call.end()
    assert (last.status, last.json["error"]["code"]) == (Code.CANCELLED, "cancelled")
    host.order(Name.ARM, c=Act.CANCEL)
    assert ended(host.ask(engine, CHAT, long())) == Code.CANCELLED
    assert idle(host, engine)
    host.order(Name.CANCEL, a=engine, b=call.number)  # again, and what was never one
    host.order(Name.CANCEL, a=engine, b=1 << 60)
    assert host.ask(engine, CHAT, chat()).answer()[0] == 200


def test_cancelling_before_it_is_loaded(host: Host) -> None:
    engine = host.create(open=TOY)
    call = host.ask(engine, CHAT, chat())
    host.order(Name.CANCEL, a=engine, b=call.number)
    host.ready()
    assert ended(call) in (Code.OK, Code.CANCELLED)  # as the loading goes
    assert idle(host, engine)


@pytest.mark.parametrize("within", [False, True])
def test_closing_while_answers_stream(host: Host, within: bool) -> None:
    engine = host.create(open=SLOW)
    host.ready()
    calls = [host.ask(engine, CHAT, long(seed=i)) for i in range(6)]
    assert calls[0].events.get(timeout=60).kind == Kind.HEAD
    if within:
        host.order(Name.ARM, c=Act.CLOSE)
    else:
        host.order(Name.CLOSE, a=engine)
    ends = [call.end() for call in calls]
    assert {end.status for end in ends} == {Code.CLOSED}
    assert ends[0].json["error"]["code"] == "engine_closed"
    host.released.get(timeout=60)
    reply = host.order(Name.REQUEST, "GET", "/health", "{}", "", a=engine)
    assert (reply.c, reply.b, reply.error["code"]) == (Code.CLOSED, 0, "engine_closed")
    host.order(Name.CLOSE, a=engine)
    assert host.released.empty()
    for name in (Name.STATS, Name.TRIM, Name.BACKGROUND, Name.POLL):
        assert host.order(name, a=engine).c == Code.CLOSED, name
    host.create(open=TOY)
    host.ready()


def test_closing_while_it_loads(host: Host) -> None:
    engine = host.create(open=TOY)
    call = host.ask(engine, CHAT, long())
    host.order(Name.CLOSE, a=engine)
    assert ended(call) == Code.CLOSED
    host.released.get(timeout=60)


def test_a_callback_that_ends_its_thread(host: Host) -> None:
    engine, other = host.create(open=SLOW), host.create(open=TOY)
    host.ready(), host.ready()
    host.order(Name.ARM, c=Act.END_THREAD)
    lost = host.ask(engine, CHAT, long())
    assert lost.events.get(timeout=60).kind == Kind.HEAD
    while not idle(host, engine):  # a call of a host that is gone is cancelled
        pass
    assert host.ask(other, CHAT, chat()).answer()[0] == 200
    host.order(Name.CLOSE, a=engine)
    host.released.get(timeout=60)
    with pytest.raises(Empty):
        list(lost.each(timeout=0.1))


def test_a_callback_that_does_not_return(host: Host) -> None:
    engine = host.create(open=TOY, max_unread_bytes=2000)
    other = host.create(open=TOY)
    host.ready(), host.ready()
    host.order(Name.ARM, c=Act.WAIT)
    calls = [host.ask(engine, CHAT, chat(max_tokens=200, stream=True, seed=i)) for i in range(3)]
    assert host.ask(other, CHAT, chat()).answer()[0] == 200
    while not idle(host, engine):
        pass
    host.order(Name.LET_GO)
    ends = [call.end() for call in calls]
    assert {end.status for end in ends} == {Code.STALLED}
    assert ends[0].json["error"]["code"] == "stalled"
    assert host.ask(engine, CHAT, chat()).answer()[0] == 200


def test_callbacks_may_call(host: Host) -> None:
    engine = host.create(open=TOY)
    host.ready()
    for act in (Act.STATS, Act.ANOTHER):
        host.order(Name.ARM, c=act)
        assert host.ask(engine, CHAT, chat()).answer()[0] == 200
        reply = host.own.get(timeout=60)
        assert (reply.kind, reply.status) == (-1, Code.OK)


def test_several_models_at_once(host: Host) -> None:
    engines = [host.create(open=TOY) for _ in range(3)]
    for _ in engines:
        host.ready()
    calls = [host.ask(engine, CHAT, chat(seed=1)) for engine in engines for _ in range(5)]
    texts = {text(call.answer()[1]) for call in calls}
    assert len(texts) == 1


def test_a_full_device_costs_the_live_requests_only(host: Host) -> None:
    engine = host.create(open=FULL)
    host.ready()
    call = host.ask(engine, CHAT, chat(stream=True))
    last = call.end()
    assert last.status == Code.NO_MEMORY and "full" in last.json["error"]["message"]
    assert host.ask(engine, CHAT, chat()).answer()[0] == 200


def test_low_memory_refuses_until_another_trim(host: Host) -> None:
    engine = host.create(open=SLOW)
    host.ready()
    going_on = host.ask(engine, CHAT, chat())
    assert host.order(Name.TRIM, a=engine, c=Trim.REFUSE).c == Code.OK
    status, body = host.ask(engine, CHAT, chat()).answer()
    assert (status, json.loads(body)["error"]["code"]) == (503, "low_memory")
    assert host.stats(engine)["trim"] == Trim.REFUSE
    assert going_on.answer()[0] == 200
    host.order(Name.TRIM, a=engine, c=Trim.NONE)
    assert host.ask(engine, CHAT, chat()).answer()[0] == 200
    assert host.order(Name.TRIM, a=engine, c=7).c == Code.BAD_ARGUMENT


def test_a_trim_forgets_prefixes(host: Host) -> None:
    engine = host.create(open=TOY)
    host.ready()

    def cached() -> int:
        status, body = host.ask(engine, CHAT, chat()).answer()
        assert status == 200
        return int(json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [cached() > 0, cached() > 0] == [False, True]
    assert host.order(Name.TRIM, a=engine, c=Trim.CACHE).c == Code.OK
    assert host.stats(engine)["engine"]["pages_kept"] == 0
    assert [cached() > 0, cached() > 0] == [False, True]


def test_the_background_unloads_the_model_if_configured(host: Host) -> None:
    engine = host.create(open=SLOW, unload_in_background=True)
    stays = host.create(open=TOY)
    host.ready(), host.ready()
    call = host.ask(engine, CHAT, long())
    assert call.events.get(timeout=60).kind == Kind.HEAD
    for each in (engine, stays):
        assert host.order(Name.BACKGROUND, a=each, c=1).c == Code.OK
    last = call.end()
    assert (last.status, last.json["error"]["code"]) == (Code.CANCELLED, "in_background")
    status, body = host.ask(engine, CHAT, chat()).answer()
    assert (status, json.loads(body)["error"]["code"]) == (503, "in_background")
    assert host.stats(engine) == {"state": "background", "trim": 0, "engine": None}
    assert host.ask(stays, CHAT, chat()).answer()[0] == 200
    assert host.order(Name.BACKGROUND, a=engine, c=0).c == Code.OK
    again = host.ask(engine, CHAT, chat())
    host.ready()
    assert again.answer()[0] == 200


SEEING = "tests.runtime.multimodal.helpers.seeing_toy:open_toy"


def shown() -> dict[str, Any]:
    """A question about an image."""
    url = data_url(picture())
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what?"}]
    return chat(messages=[{"role": "user", "content": parts}])


def test_images_where_pillow_is(host: Host) -> None:
    engine = host.create(open=SEEING)
    assert host.ready()["notes"] == []
    status, body = host.ask(engine, CHAT, shown()).answer()
    usage = json.loads(body)["usage"]
    assert status == 200 and usage["prompt_tokens_details"]["image_tokens"] > 0


def test_images_are_refused_where_nothing_decodes_them(host: Host) -> None:
    """As on phones: a note when the model is ready, and a typed error that names no command."""
    engine = host.create(open=f"{SEEING}_without_pillow")
    (note,) = host.ready()["notes"]
    assert note == "'toy' sees, but nothing here decodes images: they are refused"
    status, body = host.ask(engine, CHAT, shown()).answer()
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (400, "unsupported_content_part")
    assert "pip" not in error["message"]
    assert host.ask(engine, CHAT, chat()).answer()[0] == 200
