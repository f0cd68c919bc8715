"""LoRA adapters loaded and unloaded while serving, through vLLM's routes."""

from __future__ import annotations

from typing import Any

from mlcc.api.schema.admin_fields import LOAD_LORA, UNLOAD_LORA
from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.service.adapters import AdapterEntry, check_name
from mlcc.service.http.router import ServiceHandlers
from mlcc.service.http.routes import LORA_LOAD, LORA_UNLOAD
from mlcc.service.http.types import TEXT_TYPE, ApiRequest, ApiResponse, read_json
from mlcc.service.served_model import Models, ServedModel

_MOST = 64 << 10
"""Largest body in bytes."""


async def load(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /v1/load_lora_adapter: answers when requests may use it."""
    served = _core(models)
    body: dict[str, Any] = LOAD_LORA.check(await read_json(request, _MOST), "")
    name = check_name(body["lora_name"], (served.text.name, *served.aliases))
    folder = served.folders.find(body["lora_path"])
    try:
        await served.engine.load_adapter(AdapterEntry(name, folder), bool(body.get("load_inplace")))
    except (ArtifactError, UnsupportedError) as error:
        # The message must not contain the server's own path.
        message = error.message.replace(str(folder), body["lora_path"])
        code = error.code or "bad_adapter"
        raise InvalidRequestError(message, param="lora_path", code=code) from None
    return _text_response(f"Success: LoRA adapter '{name}' added successfully.")


async def unload(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /v1/unload_lora_adapter: answers at once; requests that are live go on with it."""
    served = _core(models)
    body: dict[str, Any] = UNLOAD_LORA.check(await read_json(request, _MOST), "")
    name: str = body["lora_name"]
    await served.engine.unload_adapter(name)
    return _text_response(f"Success: LoRA adapter '{name}' removed successfully.")


def _core(models: Models) -> ServedModel:
    if (served := models.only) is None:
        raise UnsupportedError(
            "adapters are for a server of one model; start `mlcc serve MODEL` with that alone",
            code="several_models",
        )
    return served


def _text_response(text: str) -> ApiResponse:
    return ApiResponse(200, {"content-type": TEXT_TYPE}, text)


SERVICE_HANDLERS: ServiceHandlers = {LORA_LOAD: load, LORA_UNLOAD: unload}
