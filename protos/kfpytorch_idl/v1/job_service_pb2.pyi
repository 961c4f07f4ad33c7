from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
    NODE_STATE_UNSPECIFIED: _ClassVar[NodeState]
    NODE_STATE_READY: _ClassVar[NodeState]
    NODE_STATE_DRAINED: _ClassVar[NodeState]
    NODE_STATE_NOT_READY: _ClassVar[NodeState]
NODE_STATE_UNSPECIFIED: NodeState
NODE_STATE_READY: NodeState
NODE_STATE_DRAINED: NodeState
NODE_STATE_NOT_READY: NodeState

class ListJobsRequest(_message.Message):
    __slots__ = ["namespace", "active_only", "details", "include_foreign"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FOREIGN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    active_only: bool
    details: bool
    include_foreign: bool
    def __init__(self, namespace: _Optional[str] = ..., active_only: bool = ..., details: bool = ..., include_foreign: bool = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ["jobs"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ["name", "namespace"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class WatchJobsRequest(_message.Message):
    __slots__ = ["namespace", "active_only", "name", "details"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    active_only: bool
    name: str
    details: bool
    def __init__(self, namespace: _Optional[str] = ..., active_only: bool = ..., name: _Optional[str] = ..., details: bool = ...) -> None: ...

class JobChange(_message.Message):
    __slots__ = ["job", "gone"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    job: Job
    gone: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., gone: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ReadLogsRequest(_message.Message):
    __slots__ = ["name", "namespace", "follow", "tail", "rank", "replica", "previous", "node"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    follow: bool
    tail: int
    rank: int
    replica: str
    previous: bool
    node: int
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., follow: bool = ..., tail: _Optional[int] = ..., rank: _Optional[int] = ..., replica: _Optional[str] = ..., previous: bool = ..., node: _Optional[int] = ...) -> None: ...

class LogLines(_message.Message):
    __slots__ = ["lines"]
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[LogLine]
    def __init__(self, lines: _Optional[_Iterable[_Union[LogLine, _Mapping]]] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ["replica", "time", "text"]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    replica: str
    time: str
    text: str
    def __init__(self, replica: _Optional[str] = ..., time: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ["name", "namespace", "reason"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ["job", "already_finished", "phase_before"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FINISHED_FIELD_NUMBER: _ClassVar[int]
    PHASE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    job: Job
    already_finished: bool
    phase_before: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., already_finished: bool = ..., phase_before: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ["namespace", "name", "uid", "attempt", "created", "ended", "total", "ready", "verdict", "replicas", "events", "kind", "foreign"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    attempt: Attempt
    created: _timestamp_pb2.Timestamp
    ended: _timestamp_pb2.Timestamp
    total: int
    ready: int
    verdict: Verdict
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    kind: str
    foreign: bool
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., attempt: _Optional[_Union[Attempt, _Mapping]] = ..., created: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., total: _Optional[int] = ..., ready: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., kind: _Optional[str] = ..., foreign: bool = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ["project", "domain", "execution", "node_id", "attempt", "task", "output_prefix"]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    project: str
    domain: str
    execution: str
    node_id: str
    attempt: int
    task: str
    output_prefix: str
    def __init__(self, project: _Optional[str] = ..., domain: _Optional[str] = ..., execution: _Optional[str] = ..., node_id: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[str] = ..., output_prefix: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ["phase", "reason", "message", "cause", "retry", "logs"]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    phase: str
    reason: str
    message: str
    cause: str
    retry: bool
    logs: _containers.RepeatedCompositeFieldContainer[LogLink]
    def __init__(self, phase: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., cause: _Optional[str] = ..., retry: bool = ..., logs: _Optional[_Iterable[_Union[LogLink, _Mapping]]] = ...) -> None: ...

class LogLink(_message.Message):
    __slots__ = ["name", "uri"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    name: str
    uri: str
    def __init__(self, name: _Optional[str] = ..., uri: _Optional[str] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ["role", "index", "pod", "first_rank", "ranks", "phase", "reason", "node", "restarts", "exit_code", "started", "ended"]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    FIRST_RANK_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    role: str
    index: int
    pod: str
    first_rank: int
    ranks: int
    phase: str
    reason: str
    node: str
    restarts: int
    exit_code: int
    started: _timestamp_pb2.Timestamp
    ended: _timestamp_pb2.Timestamp
    def __init__(self, role: _Optional[str] = ..., index: _Optional[int] = ..., pod: _Optional[str] = ..., first_rank: _Optional[int] = ..., ranks: _Optional[int] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., node: _Optional[str] = ..., restarts: _Optional[int] = ..., exit_code: _Optional[int] = ..., started: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ["at", "warning", "reason", "message", "kind", "name"]
    AT_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    warning: bool
    reason: str
    message: str
    kind: str
    name: str
    def __init__(self, at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., warning: bool = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ["nodes"]
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ["name", "state", "allocatable", "pods"]
    class AllocatableEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATABLE_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: NodeState
    allocatable: _containers.ScalarMap[str, str]
    pods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[NodeState, str]] = ..., allocatable: _Optional[_Mapping[str, str]] = ..., pods: _Optional[_Iterable[str]] = ...) -> None: ...

class SetNodeStateRequest(_message.Message):
    __slots__ = ["name", "state"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: NodeState
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[NodeState, str]] = ...) -> None: ...

class ListRuntimesRequest(_message.Message):
    __slots__ = ["namespace", "include_job_runtimes"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_JOB_RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    include_job_runtimes: bool
    def __init__(self, namespace: _Optional[str] = ..., include_job_runtimes: bool = ...) -> None: ...

class ListRuntimesResponse(_message.Message):
    __slots__ = ["runtimes"]
    RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    runtimes: _containers.RepeatedCompositeFieldContainer[Runtime]
    def __init__(self, runtimes: _Optional[_Iterable[_Union[Runtime, _Mapping]]] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ["namespace", "name", "kind", "framework", "nodes", "processes_per_node", "device", "device_count", "image", "job"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_COUNT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    kind: str
    framework: str
    nodes: int
    processes_per_node: str
    device: str
    device_count: str
    image: str
    job: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., framework: _Optional[str] = ..., nodes: _Optional[int] = ..., processes_per_node: _Optional[str] = ..., device: _Optional[str] = ..., device_count: _Optional[str] = ..., image: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class GetRuntimePackagesRequest(_message.Message):
    __slots__ = ["name", "namespace", "timeout"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    timeout: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RuntimePackages(_message.Message):
    __slots__ = ["runtime", "python", "packages", "gpus"]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    runtime: Runtime
    python: str
    packages: _containers.RepeatedCompositeFieldContainer[Package]
    gpus: str
    def __init__(self, runtime: _Optional[_Union[Runtime, _Mapping]] = ..., python: _Optional[str] = ..., packages: _Optional[_Iterable[_Union[Package, _Mapping]]] = ..., gpus: _Optional[str] = ...) -> None: ...

class Package(_message.Message):
    __slots__ = ["name", "version"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...
