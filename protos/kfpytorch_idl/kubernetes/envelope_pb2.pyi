from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Unknown(_message.Message):
    __slots__ = ["type_meta", "raw"]
    TYPE_META_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    type_meta: bytes
    raw: bytes
    def __init__(self, type_meta: _Optional[bytes] = ..., raw: _Optional[bytes] = ...) -> None: ...

class TypeMeta(_message.Message):
    __slots__ = ["kind"]
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: bytes
    def __init__(self, kind: _Optional[bytes] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ["type", "object"]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    type: bytes
    object: RawExtension
    def __init__(self, type: _Optional[bytes] = ..., object: _Optional[_Union[RawExtension, _Mapping]] = ...) -> None: ...

class RawExtension(_message.Message):
    __slots__ = ["raw"]
    RAW_FIELD_NUMBER: _ClassVar[int]
    raw: bytes
    def __init__(self, raw: _Optional[bytes] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ["message", "reason", "details", "code"]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    reason: bytes
    details: StatusDetails
    code: int
    def __init__(self, message: _Optional[bytes] = ..., reason: _Optional[bytes] = ..., details: _Optional[_Union[StatusDetails, _Mapping]] = ..., code: _Optional[int] = ...) -> None: ...

class StatusDetails(_message.Message):
    __slots__ = ["name", "kind", "causes", "retry_after_seconds"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    kind: bytes
    causes: _containers.RepeatedCompositeFieldContainer[StatusCause]
    retry_after_seconds: int
    def __init__(self, name: _Optional[bytes] = ..., kind: _Optional[bytes] = ..., causes: _Optional[_Iterable[_Union[StatusCause, _Mapping]]] = ..., retry_after_seconds: _Optional[int] = ...) -> None: ...

class StatusCause(_message.Message):
    __slots__ = ["reason", "field"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    reason: bytes
    field: bytes
    def __init__(self, reason: _Optional[bytes] = ..., field: _Optional[bytes] = ...) -> None: ...
