"""Many requests and many engines in one program leave no memory, threads or descriptors."""

from __future__ import annotations

from mlcc.embedded.c.codes import Code
from tests.helpers.mobile.c_host import Host, Name

CHAT = "/v1/chat/completions"
TOY = "tests.helpers.toy.toy_model:open_toy"
REQUESTS, AT_ONCE = 2000, 8
ENGINES = 100
MOST_GROWTH = 1 << 20
"""Growth of resident bytes: less than 600 for each request, 11 KB for each engine. Memory that is
kept on purpose (Python's free lists, the allocator's arenas) is allocated by equal work before the
first measurement; a thousand engines then stay within 0.6 MB of each other."""


def ask(host: Host, engine: int, number: int) -> None:
    calls = []
    for i in range(AT_ONCE):
        message = {"role": "user", "content": f"{number} {i} of many"}
        body = {"messages": [message], "max_tokens": 4, "stream": bool(i % 2)}
        calls.append(host.ask(engine, CHAT, body))
    host.order(Name.CANCEL, a=engine, b=calls[0].number)
    ends = [call.end().status for call in calls]
    assert set(ends[1:]) == {Code.OK} and ends[0] in (Code.OK, Code.CANCELLED)


def test_memory_is_flat_over_requests(host: Host) -> None:
    engine = host.create(open=TOY)
    host.ready()
    for number in range(2 * REQUESTS // AT_ONCE):  # until the allocator's arenas are full
        ask(host, engine, number)
    before = host.memory()
    for number in range(REQUESTS // AT_ONCE):
        ask(host, engine, number)
    grown = host.memory() - before
    assert grown < MOST_GROWTH, f"{grown} bytes more after {REQUESTS} requests"


def test_memory_is_flat_over_engines(host: Host) -> None:
    def one(callbacks: int) -> None:
        engine = host.create(callbacks, open=TOY)
        call = host.ask(engine, CHAT, {"messages": [{"role": "user", "content": "x"}]})
        if callbacks:
            host.ready()
            call.events.get(timeout=60)
        host.order(Name.CLOSE, a=engine)
        host.released.get(timeout=60)

    for number in range(3 * ENGINES):  # until the allocator's arenas are full
        one(number % 2)
    before = host.memory()
    for number in range(ENGINES):
        one(number % 2)
    grown = host.memory() - before
    assert grown < MOST_GROWTH, f"{grown} bytes more after {ENGINES} engines"
