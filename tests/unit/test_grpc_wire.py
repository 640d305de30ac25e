"""What clients were built from: packages, services, names, numbers and types, written out here a second time."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from minitoolstream.pb import legacy_pb2 as legacy


def described(module: Any) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def messages(file: descriptor_pb2.FileDescriptorProto) -> dict[str, str]:
    return {one.name: ", ".join(_field(one, field) for field in one.field) for one in file.message_type}


def _field(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    kind = field.type_name.rpartition(".")[2]
    if any(nested.name == kind and nested.options.map_entry for nested in message.nested_type):
        kind = "map"
    elif field.label == FieldDescriptorProto.LABEL_REPEATED:
        kind += "*"
    kind = kind or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    shown = f"{kind} {field.name} {field.number}"
    if field.proto3_optional:
        return f"optional {shown}"
    if field.HasField("oneof_index"):
        return f"{shown} of {message.oneof_decl[field.oneof_index].name}"
    return shown


def methods(file: descriptor_pb2.FileDescriptorProto) -> dict[str, str]:
    return {f"{service.name}.{method.name}": _method(method) for service in file.service for method in service.method}


def _method(method: descriptor_pb2.MethodDescriptorProto) -> str:
    asked, answered = (name.removeprefix(".") for name in (method.input_type, method.output_type))
    return f"{'stream ' * method.client_streaming}{asked} -> {'stream ' * method.server_streaming}{answered}"


def test_the_wire_is_as_the_specification_prints_it() -> None:
    """Section 5, literally. What is there beside it is ours."""
    printed = {
        "PublishRequest": "string subject 1, bytes data 2, map headers 3",
        "PublishResponse": "uint64 sequence 1, string object_name 2, int64 status_code 3, string error_message 4",
        "PublishBatchRequest": "PublishRequest* messages 1",
        "PublishBatchResponse": (
            "PublishResponse* results 1, int64 total_count 2, int64 success_count 3, int64 error_count 4"
        ),
        "GetLatestSequenceRequest": "string subject 1",
        "GetLatestSequenceResponse": "uint64 latest_sequence 1, int64 status_code 2, string error_message 3",
        "FetchRequest": "string subject 1, uint64 start_sequence 2, int32 limit 3",
        "FetchResponse": "Message* messages 1, int64 status_code 2, string error_message 3",
        "Message": "uint64 sequence 1, string subject 2, bytes data 3, map headers 4, uint64 create_at 5",
        "SubscribeRequest": "string subject 1, string durable_name 2, uint64 start_sequence 3, int32 batch_size 4",
        "SubscribeResponse": (
            "MessageBatch batch 1 of response_type, Notification notification 2 of response_type, "
            "Error error 3 of response_type"
        ),
        "MessageBatch": "Message* messages 1",
        "Notification": "uint64 latest_sequence 1, int32 new_messages_count 2",
        "Error": "int64 code 1, string message 2",
        "UpdateConsumerPositionRequest": "string durable_name 1, string subject 2, uint64 last_sequence 3",
        "UpdateConsumerPositionResponse": "int64 status_code 1, string error_message 2",
    }
    calls = {
        f"{service}.{name}": f"minitoolstream.v1.{name}Request -> {streamed}minitoolstream.v1.{name}Response"
        for service, name, streamed in (
            ("IngressService", "Publish", ""),
            ("IngressService", "PublishBatch", ""),
            ("EgressService", "GetLatestSequence", ""),
            ("EgressService", "Fetch", ""),
            ("EgressService", "Subscribe", "stream "),
            ("EgressService", "UpdateConsumerPosition", ""),
        )
    }
    files = described(ingress), described(egress)
    assert [file.package for file in files] == ["minitoolstream.v1"] * 2
    found = messages(files[0]) | messages(files[1])
    assert {name: found.get(name) for name in printed} == printed
    served = methods(files[0]) | methods(files[1])
    assert {name: served.get(name) for name in calls} == calls


def test_the_older_wire_is_the_one_that_its_clients_were_built_from() -> None:
    """All of it: nothing is added there."""
    file = described(legacy)
    assert file.package == "minitoolstream"
    assert messages(file) == {
        "PublishRequest": "string subject 1, bytes data 2, map headers 3",
        "PublishResponse": "uint64 sequence 1, string object_name 2, int64 status_code 3, string error_message 4",
        "SubscribeRequest": "string subject 1, optional uint64 start_sequence 2, string durable_name 3",
        "Notification": "string subject 1, uint64 sequence 2",
        "FetchRequest": "string subject 1, string durable_name 2, int32 batch_size 3",
        "Message": "string subject 1, uint64 sequence 2, bytes data 3, map headers 4, Timestamp timestamp 5",
        "GetLastSequenceRequest": "string subject 1",
        "GetLastSequenceResponse": "uint64 last_sequence 1",
    }
    assert methods(file) == {
        "IngressService.Publish": "minitoolstream.PublishRequest -> minitoolstream.PublishResponse",
        "EgressService.Subscribe": "minitoolstream.SubscribeRequest -> stream minitoolstream.Notification",
        "EgressService.Fetch": "minitoolstream.FetchRequest -> stream minitoolstream.Message",
        "EgressService.GetLastSequence": (
            "minitoolstream.GetLastSequenceRequest -> minitoolstream.GetLastSequenceResponse"
        ),
    }
