from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dialect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
    DIALECT_UNSPECIFIED: _ClassVar[Dialect]
    DIALECT_PYTORCHJOB: _ClassVar[Dialect]
    DIALECT_TRAINJOB: _ClassVar[Dialect]
DIALECT_UNSPECIFIED: Dialect
DIALECT_PYTORCHJOB: Dialect
DIALECT_TRAINJOB: Dialect

class JobRef(_message.Message):
    __slots__ = ["version", "dialect", "namespace", "name", "uid", "output_prefix", "refusal", "signature"]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    version: int
    dialect: Dialect
    namespace: str
    name: str
    uid: str
    output_prefix: str
    refusal: str
    signature: bytes
    def __init__(self, version: _Optional[int] = ..., dialect: _Optional[_Union[Dialect, str]] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., output_prefix: _Optional[str] = ..., refusal: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...
