"""The reference of the gRPC interfaces, from the comments of the `.proto` files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

_Path = tuple[int, ...]
_SERVICE, _METHOD, _MESSAGE, _FIELD = 6, 2, 4, 2
_HEAD = """# gRPC reference

Made from the files under [`proto/`](../proto) by `make proto`. How to use it is told in [gRPC](grpc.md).
"""


def page(descriptors: bytes, files: Sequence[str]) -> str:
    """Markdown of these files of a descriptor set that has its source comments."""
    known = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    lines = [_HEAD]
    for name in files:
        lines += _file(known[name])
    return "\n".join(lines).rstrip() + "\n"


def _file(file: FileDescriptorProto) -> Iterator[str]:
    about = _comments(file)
    yield f"## {file.package}: `proto/{file.name}`\n"
    for number, service in enumerate(file.service):
        yield f"### {service.name}\n"
        yield about.get((_SERVICE, number), "") + "\n"
        yield "| call | takes | answers | |"
        yield "|---|---|---|---|"
        for index, method in enumerate(service.method):
            told = about.get((_SERVICE, number, _METHOD, index), "")
            yield f"| `{method.name}` | {_side(method, 'input')} | {_side(method, 'output')} | {told} |"
        yield ""
    for number, message in enumerate(file.message_type):
        yield f"### {message.name}\n"
        yield about.get((_MESSAGE, number), "") + "\n"
        yield "| field | number | type | |"
        yield "|---|---|---|---|"
        for index, field in enumerate(message.field):
            told = about.get((_MESSAGE, number, _FIELD, index), "")
            yield f"| `{field.name}` | {field.number} | {_type(message, field)} | {told} |"
        yield ""


def _comments(file: FileDescriptorProto) -> dict[_Path, str]:
    return {
        tuple(place.path): " ".join(place.leading_comments.split())
        for place in file.source_code_info.location
        if place.leading_comments
    }


def _side(method: MethodDescriptorProto, side: str) -> str:
    name = (method.input_type if side == "input" else method.output_type).rpartition(".")[2]
    streams = method.client_streaming if side == "input" else method.server_streaming
    return f"stream of `{name}`" if streams else f"`{name}`"


def _type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    entry = next((nested for nested in message.nested_type if field.type_name.endswith(f".{nested.name}")), None)
    if entry is not None and entry.options.map_entry:
        return f"map of {_name(entry.field[0])} to {_name(entry.field[1])}"
    name = _name(field)
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    if field.HasField("oneof_index"):
        return f"{name}, optional" if field.proto3_optional else f"{name}, one of `{_oneof(message, field)}`"
    return name


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    return message.oneof_decl[field.oneof_index].name


def _name(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return f"`{field.type_name.rpartition('.')[2]}`"
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
