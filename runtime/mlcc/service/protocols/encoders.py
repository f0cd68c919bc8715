"""What is asked of encoders in OpenAI's, vLLM's and Jina's words: refused, for there are none."""

from __future__ import annotations

from mlcc.api.encoders import ENCODED, no_encoder
from mlcc.service.addresses import EMBEDDINGS, RERANK, RERANK_PLAIN, SCORE
from mlcc.service.core import Core
from mlcc.service.exchange import ApiRequest, ApiResponse
from mlcc.service.routes import Handler, Handlers


def _refusing(what: str) -> Handler:
    async def handle(core: Core, request: ApiRequest) -> ApiResponse:
        body = await core.body(request)
        core.check_model(ENCODED.check(body, "").get("model"))
        raise no_encoder(core.text.name, what)

    return handle


HANDLERS: Handlers = {
    EMBEDDINGS: _refusing("embeddings"),
    SCORE: _refusing("scores"),
    RERANK: _refusing("ranking"),
    RERANK_PLAIN: _refusing("ranking"),
}
