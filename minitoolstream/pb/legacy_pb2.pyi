# Made by `make proto`: change the .proto file instead.
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishRequest(_message.Message):
    __slots__ = ("subject", "data", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    data: bytes
    headers: _containers.ScalarMap[str, str]
    def __init__(self, subject: _Optional[str] = ..., data: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("sequence", "object_name", "status_code", "error_message")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    object_name: str
    status_code: int
    error_message: str
    def __init__(self, sequence: _Optional[int] = ..., object_name: _Optional[str] = ..., status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("subject", "start_sequence", "durable_name")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    subject: str
    start_sequence: int
    durable_name: str
    def __init__(self, subject: _Optional[str] = ..., start_sequence: _Optional[int] = ..., durable_name: _Optional[str] = ...) -> None: ...

class Notification(_message.Message):
    __slots__ = ("subject", "sequence")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    sequence: int
    def __init__(self, subject: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("subject", "durable_name", "batch_size")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    durable_name: str
    batch_size: int
    def __init__(self, subject: _Optional[str] = ..., durable_name: _Optional[str] = ..., batch_size: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("subject", "sequence", "data", "headers", "timestamp")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    subject: str
    sequence: int
    data: bytes
    headers: _containers.ScalarMap[str, str]
    timestamp: _timestamp_pb2.Timestamp
    def __init__(self, subject: _Optional[str] = ..., sequence: _Optional[int] = ..., data: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetLastSequenceRequest(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    def __init__(self, subject: _Optional[str] = ...) -> None: ...

class GetLastSequenceResponse(_message.Message):
    __slots__ = ("last_sequence",)
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    last_sequence: int
    def __init__(self, last_sequence: _Optional[int] = ...) -> None: ...
