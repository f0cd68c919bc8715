"""Messages of the Open Inference Protocol over gRPC: a table of their fields, from which protobuf's
runtime makes the classes. No generated code, and a descriptor pool of their own, as a client in the
same process registers the same names.

Names, numbers and types are the protocol's (KServe's `open_inference_grpc.proto`, with Triton's
stream and model repository), and those of gRPC's health checking protocol.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE, HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"
_CHOICE = "oneof"

# A message's fields: [repeated ]TYPE NAME[ = NUMBER], or a map. Without NUMBER, it is the next one.
_TENSOR = "string name; string datatype; repeated int64 shape; map InferParameter parameters; "
_NAMED = "string name; string version"
_PORT = "string name; int32 data_type; repeated int64 dims"
_CHANGE = "string repository_name; string model_name; map ModelRepositoryParameter parameters"
_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": _NAMED,
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": f"{_NAMED}; repeated string extensions",
    "ModelMetadataRequest": _NAMED,
    "ModelMetadataResponse.TensorMetadata": "string name; string datatype; repeated int64 shape",
    "ModelMetadataResponse": "string name; repeated string versions; string platform; "
    "repeated ModelMetadataResponse.TensorMetadata inputs; "
    "repeated ModelMetadataResponse.TensorMetadata outputs",
    "InferParameter": "oneof bool bool_param; oneof int64 int64_param; oneof string string_param; "
    "oneof double double_param; oneof uint64 uint64_param",
    "InferTensorContents": "repeated bool bool_contents; repeated int32 int_contents; "
    "repeated int64 int64_contents; repeated uint32 uint_contents; "
    "repeated uint64 uint64_contents; repeated float fp32_contents; "
    "repeated double fp64_contents; repeated bytes bytes_contents",
    "ModelInferRequest.InferInputTensor": f"{_TENSOR}InferTensorContents contents",
    "ModelInferRequest.InferRequestedOutputTensor": "string name; map InferParameter parameters",
    "ModelInferRequest": "string model_name; string model_version; string id; "
    "map InferParameter parameters; repeated ModelInferRequest.InferInputTensor inputs; "
    "repeated ModelInferRequest.InferRequestedOutputTensor outputs; "
    "repeated bytes raw_input_contents",
    "ModelInferResponse.InferOutputTensor": f"{_TENSOR}InferTensorContents contents",
    "ModelInferResponse": "string model_name; string model_version; string id; "
    "map InferParameter parameters; repeated ModelInferResponse.InferOutputTensor outputs; "
    "repeated bytes raw_output_contents",
    "ModelStreamInferResponse": "string error_message; ModelInferResponse infer_response",
    "ModelConfigRequest": _NAMED,
    "ModelConfigResponse": "ModelConfig config",
    "ModelInput": f"{_PORT} = 4",
    "ModelOutput": _PORT,
    "ModelTransactionPolicy": "bool decoupled",
    "ModelConfig": "string name; string platform; int32 max_batch_size = 4; "
    "repeated ModelInput input; repeated ModelOutput output; string backend = 17; "
    "ModelTransactionPolicy model_transaction_policy = 19",
    "ModelStatisticsRequest": _NAMED,
    "ModelStatisticsResponse": "repeated ModelStatistics model_stats",
    "StatisticDuration": "uint64 count; uint64 ns",
    "InferStatistics": "StatisticDuration success; StatisticDuration fail; "
    "StatisticDuration queue; StatisticDuration compute_input; StatisticDuration compute_infer; "
    "StatisticDuration compute_output; StatisticDuration cache_hit; StatisticDuration cache_miss",
    "InferBatchStatistics": "uint64 batch_size; StatisticDuration compute_input; "
    "StatisticDuration compute_infer; StatisticDuration compute_output",
    "ModelStatistics": f"{_NAMED}; uint64 last_inference; uint64 inference_count; "
    "uint64 execution_count; InferStatistics inference_stats; "
    "repeated InferBatchStatistics batch_stats",
    "RepositoryIndexRequest": "string repository_name; bool ready",
    "RepositoryIndexResponse.ModelIndex": f"{_NAMED}; string state; string reason",
    "RepositoryIndexResponse": "repeated RepositoryIndexResponse.ModelIndex models",
    "ModelRepositoryParameter": "oneof bool bool_param; oneof int64 int64_param; "
    "oneof string string_param; oneof bytes bytes_param",
    "RepositoryModelLoadRequest": _CHANGE,
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": _CHANGE,
    "RepositoryModelUnloadResponse": "",
}
_HEALTH_MESSAGES = {"HealthCheckRequest": "string service", "HealthCheckResponse": "int32 status"}
SERVING, NOT_SERVING = 1, 2
"""States of HealthCheckResponse: an enum there, which has an int32's bytes."""
DATA_TYPES = {"TYPE_FP32": 11, "TYPE_STRING": 13}
"""Numbers of Triton's enum of data types."""


@cache
def message(name: str) -> Any:
    """The class of a message, such as "ModelInferRequest"."""
    package = "grpc.health.v1" if name in _HEALTH_MESSAGES else "inference"
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{package}.{name}"))


@cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for package, table in (("inference", _MESSAGES), ("grpc.health.v1", _HEALTH_MESSAGES)):
        name = f"mlcc/{package}.proto"
        file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
        made: dict[str, Any] = {}
        for path, fields in sorted(table.items()):  # an outer message before those within
            outer, _, inner = path.rpartition(".")
            made[path] = made[outer].nested_type.add() if outer else file.message_type.add()
            made[path].name = inner
            number = 0
            for field in filter(None, fields.split("; ")):
                words, _, given = field.partition(" = ")
                number = int(given or number + 1)
                _add(made[path], f".{package}", path, number, words.split())
        pool.Add(file)
    return pool


def _add(of: Any, package: str, path: str, number: int, words: list[str]) -> None:
    """Add a field to a message's descriptor."""
    *label, kind, name = words
    field = of.field.add(name=name, number=number)
    types = descriptor_pb2.FieldDescriptorProto
    field.label = types.LABEL_REPEATED if label in (["repeated"], ["map"]) else types.LABEL_OPTIONAL
    if label == [_CHOICE]:
        if not of.oneof_decl:
            of.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if label == ["map"]:
        entry = of.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add(entry, package, "", 1, ["string", "key"])
        _add(entry, package, "", 2, [kind, "value"])
        kind = f"{path}.{entry.name}"
    if re.match("[a-z]", kind):
        field.type = getattr(types, f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = types.TYPE_MESSAGE, f"{package}.{kind}"
