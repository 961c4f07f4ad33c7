from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WrappedPod(_message.Message):
    __slots__ = ["type_meta", "raw"]
    TYPE_META_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    type_meta: bytes
    raw: Pod
    def __init__(self, type_meta: _Optional[bytes] = ..., raw: _Optional[_Union[Pod, _Mapping]] = ...) -> None: ...

class WrappedPodList(_message.Message):
    __slots__ = ["type_meta", "raw"]
    TYPE_META_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    type_meta: bytes
    raw: PodList
    def __init__(self, type_meta: _Optional[bytes] = ..., raw: _Optional[_Union[PodList, _Mapping]] = ...) -> None: ...

class PodList(_message.Message):
    __slots__ = ["metadata", "items"]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    metadata: ListMeta
    items: _containers.RepeatedCompositeFieldContainer[Pod]
    def __init__(self, metadata: _Optional[_Union[ListMeta, _Mapping]] = ..., items: _Optional[_Iterable[_Union[Pod, _Mapping]]] = ...) -> None: ...

class ListMeta(_message.Message):
    __slots__ = ["resource_version", "rest"]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    resource_version: bytes
    rest: bytes
    def __init__(self, resource_version: _Optional[bytes] = ..., rest: _Optional[bytes] = ...) -> None: ...

class Pod(_message.Message):
    __slots__ = ["metadata", "spec", "status"]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus
    def __init__(self, metadata: _Optional[_Union[ObjectMeta, _Mapping]] = ..., spec: _Optional[_Union[PodSpec, _Mapping]] = ..., status: _Optional[_Union[PodStatus, _Mapping]] = ...) -> None: ...

class ObjectMeta(_message.Message):
    __slots__ = ["name", "namespace", "uid", "resource_version", "creation_timestamp", "deletion_timestamp", "deletion_grace_period_seconds", "labels", "owner_references"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATION_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELETION_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELETION_GRACE_PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    OWNER_REFERENCES_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    namespace: bytes
    uid: bytes
    resource_version: bytes
    creation_timestamp: bytes
    deletion_timestamp: bytes
    deletion_grace_period_seconds: int
    labels: _containers.ScalarMap[str, bytes]
    owner_references: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[bytes] = ..., namespace: _Optional[bytes] = ..., uid: _Optional[bytes] = ..., resource_version: _Optional[bytes] = ..., creation_timestamp: _Optional[bytes] = ..., deletion_timestamp: _Optional[bytes] = ..., deletion_grace_period_seconds: _Optional[int] = ..., labels: _Optional[_Mapping[str, bytes]] = ..., owner_references: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Time(_message.Message):
    __slots__ = ["seconds"]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: int
    def __init__(self, seconds: _Optional[int] = ...) -> None: ...

class OwnerReference(_message.Message):
    __slots__ = ["uid"]
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: bytes
    def __init__(self, uid: _Optional[bytes] = ...) -> None: ...

class PodSpec(_message.Message):
    __slots__ = ["node_name", "hostname"]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    node_name: bytes
    hostname: bytes
    def __init__(self, node_name: _Optional[bytes] = ..., hostname: _Optional[bytes] = ...) -> None: ...

class PodStatus(_message.Message):
    __slots__ = ["phase", "conditions", "message", "reason", "start_time", "container_statuses", "init_container_statuses"]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    INIT_CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    phase: bytes
    conditions: _containers.RepeatedScalarFieldContainer[bytes]
    message: bytes
    reason: bytes
    start_time: bytes
    container_statuses: _containers.RepeatedCompositeFieldContainer[ContainerStatus]
    init_container_statuses: _containers.RepeatedCompositeFieldContainer[ContainerStatus]
    def __init__(self, phase: _Optional[bytes] = ..., conditions: _Optional[_Iterable[bytes]] = ..., message: _Optional[bytes] = ..., reason: _Optional[bytes] = ..., start_time: _Optional[bytes] = ..., container_statuses: _Optional[_Iterable[_Union[ContainerStatus, _Mapping]]] = ..., init_container_statuses: _Optional[_Iterable[_Union[ContainerStatus, _Mapping]]] = ...) -> None: ...

class PodCondition(_message.Message):
    __slots__ = ["type", "status", "last_transition_time", "reason", "message"]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_TRANSITION_TIME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: bytes
    status: bytes
    last_transition_time: bytes
    reason: bytes
    message: bytes
    def __init__(self, type: _Optional[bytes] = ..., status: _Optional[bytes] = ..., last_transition_time: _Optional[bytes] = ..., reason: _Optional[bytes] = ..., message: _Optional[bytes] = ...) -> None: ...

class ContainerStatus(_message.Message):
    __slots__ = ["name", "state", "last_state", "restart_count", "image", "container_id"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_STATE_FIELD_NUMBER: _ClassVar[int]
    RESTART_COUNT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    state: bytes
    last_state: bytes
    restart_count: int
    image: bytes
    container_id: bytes
    def __init__(self, name: _Optional[bytes] = ..., state: _Optional[bytes] = ..., last_state: _Optional[bytes] = ..., restart_count: _Optional[int] = ..., image: _Optional[bytes] = ..., container_id: _Optional[bytes] = ...) -> None: ...

class ContainerState(_message.Message):
    __slots__ = ["waiting", "running", "terminated"]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    waiting: ContainerStateWaiting
    running: ContainerStateRunning
    terminated: ContainerStateTerminated
    def __init__(self, waiting: _Optional[_Union[ContainerStateWaiting, _Mapping]] = ..., running: _Optional[_Union[ContainerStateRunning, _Mapping]] = ..., terminated: _Optional[_Union[ContainerStateTerminated, _Mapping]] = ...) -> None: ...

class ContainerStateWaiting(_message.Message):
    __slots__ = ["reason", "message"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: bytes
    message: bytes
    def __init__(self, reason: _Optional[bytes] = ..., message: _Optional[bytes] = ...) -> None: ...

class ContainerStateRunning(_message.Message):
    __slots__ = ["started_at"]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    started_at: bytes
    def __init__(self, started_at: _Optional[bytes] = ...) -> None: ...

class ContainerStateTerminated(_message.Message):
    __slots__ = ["exit_code", "reason", "message", "started_at", "finished_at"]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    reason: bytes
    message: bytes
    started_at: bytes
    finished_at: bytes
    def __init__(self, exit_code: _Optional[int] = ..., reason: _Optional[bytes] = ..., message: _Optional[bytes] = ..., started_at: _Optional[bytes] = ..., finished_at: _Optional[bytes] = ...) -> None: ...
