"""The HTTP API without a transport: requests in, responses out, in one asyncio loop.

`service.py` dispatches a request to its route's handler (`http/router.py`, `protocols/`);
`served_model.py` is one model with its engine; `generate.py` and `embeddings.py` make answers;
`engine_client.py` is the engine as asyncio sees it. Standard library and jinja2 only: the server
puts it on sockets (`mlcc.server`), a tab behind `fetch` (`mlcc.embedded`), a C program behind
functions (`mlcc.embedded.c`).
"""
