# Made by `make proto`: change the .proto file instead.
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetLatestSequenceRequest(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    def __init__(self, subject: _Optional[str] = ...) -> None: ...

class GetLatestSequenceResponse(_message.Message):
    __slots__ = ("latest_sequence", "status_code", "error_message")
    LATEST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    latest_sequence: int
    status_code: int
    error_message: str
    def __init__(self, latest_sequence: _Optional[int] = ..., status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("subject", "start_sequence", "limit")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    start_sequence: int
    limit: int
    def __init__(self, subject: _Optional[str] = ..., start_sequence: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("messages", "status_code", "error_message")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    status_code: int
    error_message: str
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("sequence", "subject", "data", "headers", "create_at")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CREATE_AT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    subject: str
    data: bytes
    headers: _containers.ScalarMap[str, str]
    create_at: int
    def __init__(self, sequence: _Optional[int] = ..., subject: _Optional[str] = ..., data: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., create_at: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("subject", "durable_name", "start_sequence", "batch_size")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    durable_name: str
    start_sequence: int
    batch_size: int
    def __init__(self, subject: _Optional[str] = ..., durable_name: _Optional[str] = ..., start_sequence: _Optional[int] = ..., batch_size: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("batch", "notification", "error")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    batch: MessageBatch
    notification: Notification
    error: Error
    def __init__(self, batch: _Optional[_Union[MessageBatch, _Mapping]] = ..., notification: _Optional[_Union[Notification, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class MessageBatch(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class Notification(_message.Message):
    __slots__ = ("latest_sequence", "new_messages_count")
    LATEST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEW_MESSAGES_COUNT_FIELD_NUMBER: _ClassVar[int]
    latest_sequence: int
    new_messages_count: int
    def __init__(self, latest_sequence: _Optional[int] = ..., new_messages_count: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class UpdateConsumerPositionRequest(_message.Message):
    __slots__ = ("durable_name", "subject", "last_sequence")
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    durable_name: str
    subject: str
    last_sequence: int
    def __init__(self, durable_name: _Optional[str] = ..., subject: _Optional[str] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class UpdateConsumerPositionResponse(_message.Message):
    __slots__ = ("status_code", "error_message")
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    status_code: int
    error_message: str
    def __init__(self, status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class GetConsumerPositionRequest(_message.Message):
    __slots__ = ("durable_name", "subject")
    DURABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    durable_name: str
    subject: str
    def __init__(self, durable_name: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class GetConsumerPositionResponse(_message.Message):
    __slots__ = ("last_sequence", "latest_sequence", "messages_lag", "status_code", "error_message")
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LATEST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_LAG_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    last_sequence: int
    latest_sequence: int
    messages_lag: int
    status_code: int
    error_message: str
    def __init__(self, last_sequence: _Optional[int] = ..., latest_sequence: _Optional[int] = ..., messages_lag: _Optional[int] = ..., status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ("sequence", "offset", "length")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    offset: int
    length: int
    def __init__(self, sequence: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class DownloadResponse(_message.Message):
    __slots__ = ("info", "data", "error")
    INFO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    info: DownloadInfo
    data: bytes
    error: Error
    def __init__(self, info: _Optional[_Union[DownloadInfo, _Mapping]] = ..., data: _Optional[bytes] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class DownloadInfo(_message.Message):
    __slots__ = ("message", "size", "sha256")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    message: Message
    size: int
    sha256: str
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...
