"""Tokenization, detokenization and template rendering: llama.cpp's and vLLM's routes, which have
the same paths. The name of the text field tells which of the two protocols is used.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mlcc.api.llamacpp.fields import DETOKENIZE, TOKENIZE
from mlcc.api.openai.requests import parse_chat
from mlcc.api.schema.chat_fields import CHAT, PROMPT_END
from mlcc.engine.text.tokenizer import Tokenizer
from mlcc.errors import InvalidRequestError
from mlcc.service.generate import MOST_COUNTED, ChatPlan
from mlcc.service.http.json_pieces import json_text
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import APPLY_TEMPLATE
from mlcc.service.http.routes import DETOKENIZE as DETOKENIZE_AT
from mlcc.service.http.routes import TOKENIZE as TOKENIZE_AT
from mlcc.service.http.types import JSON_TYPE, ApiRequest, ApiResponse
from mlcc.service.served_model import ServedModel

WORDS = ("content", "prompt", "messages")
OF_CHAT = ("messages", "tools", "chat_template_kwargs", *(row.name for row in PROMPT_END))
"""Fields of a chat request that its prompt depends on."""


async def tokenize(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /tokenize."""
    body = await served.body(request)
    fields, ignored = await served.checked(request, body, TOKENIZE.fields_of, TOKENIZE)
    served.check_model(fields.get("model"))
    given = [word for word in WORDS if word in fields]
    if len(given) != 1:
        raise InvalidRequestError(
            "the request must have one of 'content', 'prompt' and 'messages'",
            param="content",
            code="missing_required_parameter" if not given else "invalid_value",
        )
    ids = await _ids(served, request, fields, given[0], body)
    pieces: list[str] = []
    if _wants(fields):
        pieces = await request.offload.check(partial(_pieces, served.text.tokenizer, ids))
    context = None if given[0] == "content" else served.engine.capacity.context
    return await _written(request, partial(_tokens, ids, pieces, context), ignored)


async def detokenize(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /detokenize."""
    body = await served.body(request)
    fields, ignored = await served.checked(request, body, DETOKENIZE.fields_of, DETOKENIZE)
    served.check_model(fields.get("model"))
    size, decode = served.engine.capacity.vocab_size, served.text.tokenizer.decode

    def decoded() -> dict[str, str]:
        _check_ids(fields["tokens"], size)
        text = decode(fields["tokens"])
        return {"content": text, "prompt": text}

    return await _written(request, decoded, ignored)


async def apply_template(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /apply-template, with a body as the chat's."""
    body = await served.body(request)
    parse = partial(parse_chat, sees=served.sees, hears=served.hears)
    parsed, ignored = await served.checked(request, body, parse, CHAT)
    served.check_model(parsed.delivery.model)
    plan = await request.offload.check(partial(ChatPlan, parsed, served.text))
    seconds, media = parsed.delivery.timeout, parsed.media
    text = await served.prompts.written(plan.messages, seconds, plan.variables, media)
    return await _written(request, lambda: {"prompt": text}, ignored)


async def _ids(
    served: ServedModel, request: ApiRequest, fields: Mapping[str, Any], word: str, body: Any
) -> array[int]:
    """The token ids; the length is not limited, as nothing is computed."""
    if word == "messages":
        chat = {name: body[name] for name in OF_CHAT if name in body}
        parse = partial(parse_chat, chat, served.sees, served.hears)
        plan = await request.offload.check(lambda: ChatPlan(parse(), served.text))
        return (await plan.prompt(served.prompts, MOST_COUNTED, None)).ids
    name, default = ("add_special", False) if word == "content" else ("add_special_tokens", True)
    special = fields.get(name, default)
    return await served.prompts.text(fields[word], MOST_COUNTED, None, special)


async def _written(
    request: ApiRequest, make: Callable[[], Any], headers: Mapping[str, str]
) -> ApiResponse:
    """The response with a value, which is made and written where the body was checked."""
    text = await request.offload.check(lambda: json_text(make()))
    return ApiResponse(200, {"content-type": JSON_TYPE, **headers}, text)


def _tokens(ids: array[int], pieces: Sequence[str], context: int | None) -> dict[str, Any]:
    """The answer of /tokenize: vLLM's with a context, llama.cpp's without."""
    if context is None:
        rows = ({"id": i, "piece": piece} for i, piece in zip(ids, pieces, strict=True))
        return {"tokens": rows if pieces else ids}
    strings = {"token_strs": pieces} if pieces else {}
    return {"count": len(ids), "max_model_len": context, "tokens": ids, **strings}


def _check_ids(tokens: Sequence[int], vocabulary: int) -> None:
    """Raise InvalidRequestError for a number that is no token's."""
    if max(tokens, default=0) >= vocabulary:
        number = next(i for i, token in enumerate(tokens) if token >= vocabulary)
        raise InvalidRequestError(
            f"'tokens[{number}]' is {tokens[number]}, the vocabulary is 0 .. {vocabulary - 1}",
            param=f"tokens[{number}]",
            code="invalid_value",
        )


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token by itself."""
    texts: dict[int, str] = {}
    for token in ids:  # not `set(ids)`: one call for a million keeps the event loop waiting
        if token not in texts:
            texts[token] = tokenizer.decode([token])
    return [texts[token] for token in ids]


def _wants(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("with_pieces") or fields.get("return_token_strs"))


HANDLERS: Handlers = {
    TOKENIZE_AT: tokenize,
    DETOKENIZE_AT: detokenize,
    APPLY_TEMPLATE: apply_template,
}
