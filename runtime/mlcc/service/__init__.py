"""The OpenAI-style API without a transport: a request in, a response out, by asyncio alone.

`endpoints.py` finds the address and answers, `exchange.py` says what requests and responses are,
`engine.py` is the engine as asyncio sees it and keeps the books of who waits for what, `job.py` is
one request's share of it, `events.py` writes streams. Standard library and jinja2 only: the server
puts it on sockets (`mlcc.server`), a tab behind `fetch` (`mlcc.embedded`), a C program behind
functions (`mlcc.embedded.c`).
"""
