"""Response types of the Open Inference Protocol, for the description of the API."""

from __future__ import annotations

from typing import Any, TypedDict


class ServerMetadata(TypedDict):
    """The answer of /v2."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(TypedDict):
    """The answer of /v2/health/live."""

    live: bool


class ServerReady(TypedDict):
    """The answer of /v2/health/ready."""

    ready: bool


class ModelReady(TypedDict):
    """The answer of /v2/models/NAME/ready."""

    name: str
    ready: bool


class ModelMetadata(TypedDict):
    """The answer of /v2/models/NAME."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Any]
    outputs: list[Any]


class TritonConfig(TypedDict):
    """The answer of /v2/models/NAME/config."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[Any]
    output: list[Any]
    model_transaction_policy: Any


class TritonStatistics(TypedDict):
    """The answer of /v2/models/NAME/stats and /v2/models/stats: a row a model."""

    model_stats: list[Any]


class _WithId(TypedDict, total=False):
    id: str


class InferResponse(_WithId):
    """The answer of /v2/models/NAME/infer; data may be bytes behind it."""

    model_name: str
    model_version: str
    outputs: list[Any]


class TritonText(TypedDict):
    """A whole answer of Triton's generate, or a piece of one."""

    model_name: str
    model_version: str
    text_output: str


class KserveError(TypedDict):
    """A refusal or a failure."""

    error: str
