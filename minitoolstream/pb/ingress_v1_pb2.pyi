# Made by `make proto`: change the .proto file instead.
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
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

class PublishBatchRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PublishRequest]
    def __init__(self, messages: _Optional[_Iterable[_Union[PublishRequest, _Mapping]]] = ...) -> None: ...

class PublishBatchResponse(_message.Message):
    __slots__ = ("results", "total_count", "success_count", "error_count")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_COUNT_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PublishResponse]
    total_count: int
    success_count: int
    error_count: int
    def __init__(self, results: _Optional[_Iterable[_Union[PublishResponse, _Mapping]]] = ..., total_count: _Optional[int] = ..., success_count: _Optional[int] = ..., error_count: _Optional[int] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("subject", "size", "headers", "sha256", "producer_id", "seqno", "epoch", "group", "codec")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQNO_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    subject: str
    size: int
    headers: _containers.ScalarMap[str, str]
    sha256: str
    producer_id: str
    seqno: int
    epoch: int
    group: str
    codec: str
    def __init__(self, subject: _Optional[str] = ..., size: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., sha256: _Optional[str] = ..., producer_id: _Optional[str] = ..., seqno: _Optional[int] = ..., epoch: _Optional[int] = ..., group: _Optional[str] = ..., codec: _Optional[str] = ...) -> None: ...

class PublishStreamRequest(_message.Message):
    __slots__ = ("upload", "data")
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    upload: Upload
    data: bytes
    def __init__(self, upload: _Optional[_Union[Upload, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class PublishStreamResponse(_message.Message):
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

class IssueTicketRequest(_message.Message):
    __slots__ = ("upload", "upload_id", "from_part")
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_PART_FIELD_NUMBER: _ClassVar[int]
    upload: Upload
    upload_id: str
    from_part: int
    def __init__(self, upload: _Optional[_Union[Upload, _Mapping]] = ..., upload_id: _Optional[str] = ..., from_part: _Optional[int] = ...) -> None: ...

class SignedRequest(_message.Message):
    __slots__ = ("method", "url", "headers", "part_number", "size")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METHOD_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PART_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    method: str
    url: str
    headers: _containers.ScalarMap[str, str]
    part_number: int
    size: int
    def __init__(self, method: _Optional[str] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., part_number: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class IssueTicketResponse(_message.Message):
    __slots__ = ("upload_id", "object_name", "requests", "next_part", "expires_at", "receipt", "status_code", "error_message")
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PART_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    upload_id: str
    object_name: str
    requests: _containers.RepeatedCompositeFieldContainer[SignedRequest]
    next_part: int
    expires_at: int
    receipt: Receipt
    status_code: int
    error_message: str
    def __init__(self, upload_id: _Optional[str] = ..., object_name: _Optional[str] = ..., requests: _Optional[_Iterable[_Union[SignedRequest, _Mapping]]] = ..., next_part: _Optional[int] = ..., expires_at: _Optional[int] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class GetReceiptRequest(_message.Message):
    __slots__ = ("upload_id", "wait_seconds", "complete")
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    upload_id: str
    wait_seconds: float
    complete: bool
    def __init__(self, upload_id: _Optional[str] = ..., wait_seconds: _Optional[float] = ..., complete: _Optional[bool] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("upload_id", "state", "sequence", "partition", "offset", "duplicate", "reason")
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    upload_id: str
    state: str
    sequence: int
    partition: int
    offset: int
    duplicate: bool
    reason: str
    def __init__(self, upload_id: _Optional[str] = ..., state: _Optional[str] = ..., sequence: _Optional[int] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., duplicate: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class GetReceiptResponse(_message.Message):
    __slots__ = ("receipt", "status_code", "error_message")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    receipt: Receipt
    status_code: int
    error_message: str
    def __init__(self, receipt: _Optional[_Union[Receipt, _Mapping]] = ..., status_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...
