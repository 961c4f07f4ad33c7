from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskExtension(_message.Message):
    __slots__ = ["version", "master", "worker", "gang", "train_job"]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    TRAIN_JOB_FIELD_NUMBER: _ClassVar[int]
    version: int
    master: Role
    worker: Role
    gang: Gang
    train_job: TrainJob
    def __init__(self, version: _Optional[int] = ..., master: _Optional[_Union[Role, _Mapping]] = ..., worker: _Optional[_Union[Role, _Mapping]] = ..., gang: _Optional[_Union[Gang, _Mapping]] = ..., train_job: _Optional[_Union[TrainJob, _Mapping]] = ...) -> None: ...

class Role(_message.Message):
    __slots__ = ["node_selector", "tolerations", "pod_template", "priority_class_name", "num_retries"]
    class NodeSelectorEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    TOLERATIONS_FIELD_NUMBER: _ClassVar[int]
    POD_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_RETRIES_FIELD_NUMBER: _ClassVar[int]
    node_selector: _containers.ScalarMap[str, str]
    tolerations: _containers.RepeatedCompositeFieldContainer[Toleration]
    pod_template: _struct_pb2.Struct
    priority_class_name: str
    num_retries: int
    def __init__(self, node_selector: _Optional[_Mapping[str, str]] = ..., tolerations: _Optional[_Iterable[_Union[Toleration, _Mapping]]] = ..., pod_template: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., priority_class_name: _Optional[str] = ..., num_retries: _Optional[int] = ...) -> None: ...

class Toleration(_message.Message):
    __slots__ = ["key", "operator", "value", "effect", "toleration_seconds"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    TOLERATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    key: str
    operator: str
    value: str
    effect: str
    toleration_seconds: int
    def __init__(self, key: _Optional[str] = ..., operator: _Optional[str] = ..., value: _Optional[str] = ..., effect: _Optional[str] = ..., toleration_seconds: _Optional[int] = ...) -> None: ...

class Gang(_message.Message):
    __slots__ = ["scheduler", "queue", "min_member", "priority_class_name", "queue_timeout_seconds", "pending_timeout_seconds"]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MIN_MEMBER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PENDING_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    scheduler: str
    queue: str
    min_member: int
    priority_class_name: str
    queue_timeout_seconds: int
    pending_timeout_seconds: int
    def __init__(self, scheduler: _Optional[str] = ..., queue: _Optional[str] = ..., min_member: _Optional[int] = ..., priority_class_name: _Optional[str] = ..., queue_timeout_seconds: _Optional[int] = ..., pending_timeout_seconds: _Optional[int] = ...) -> None: ...

class TrainJob(_message.Message):
    __slots__ = ["runtime", "runtime_kind", "max_restarts", "packages", "success_policy", "pod_failure_policy", "topology", "dataset", "model", "storage", "framework"]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_KIND_FIELD_NUMBER: _ClassVar[int]
    MAX_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_POLICY_FIELD_NUMBER: _ClassVar[int]
    POD_FAILURE_POLICY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    runtime: str
    runtime_kind: str
    max_restarts: int
    packages: _containers.RepeatedScalarFieldContainer[str]
    success_policy: SuccessPolicy
    pod_failure_policy: _containers.RepeatedCompositeFieldContainer[PodFailurePolicyRule]
    topology: Topology
    dataset: DataSource
    model: DataSource
    storage: Storage
    framework: str
    def __init__(self, runtime: _Optional[str] = ..., runtime_kind: _Optional[str] = ..., max_restarts: _Optional[int] = ..., packages: _Optional[_Iterable[str]] = ..., success_policy: _Optional[_Union[SuccessPolicy, _Mapping]] = ..., pod_failure_policy: _Optional[_Iterable[_Union[PodFailurePolicyRule, _Mapping]]] = ..., topology: _Optional[_Union[Topology, _Mapping]] = ..., dataset: _Optional[_Union[DataSource, _Mapping]] = ..., model: _Optional[_Union[DataSource, _Mapping]] = ..., storage: _Optional[_Union[Storage, _Mapping]] = ..., framework: _Optional[str] = ...) -> None: ...

class Topology(_message.Message):
    __slots__ = ["level", "mode"]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    level: str
    mode: str
    def __init__(self, level: _Optional[str] = ..., mode: _Optional[str] = ...) -> None: ...

class SuccessPolicy(_message.Message):
    __slots__ = ["succeeded_indexes"]
    SUCCEEDED_INDEXES_FIELD_NUMBER: _ClassVar[int]
    succeeded_indexes: str
    def __init__(self, succeeded_indexes: _Optional[str] = ...) -> None: ...

class PodFailurePolicyRule(_message.Message):
    __slots__ = ["action", "exit_codes", "operator", "pod_conditions"]
    class PodConditionsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACTION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODES_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    POD_CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    action: str
    exit_codes: _containers.RepeatedScalarFieldContainer[int]
    operator: str
    pod_conditions: _containers.ScalarMap[str, str]
    def __init__(self, action: _Optional[str] = ..., exit_codes: _Optional[_Iterable[int]] = ..., operator: _Optional[str] = ..., pod_conditions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DataSource(_message.Message):
    __slots__ = ["uri", "secret", "env"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URI_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    uri: str
    secret: str
    env: _containers.ScalarMap[str, str]
    def __init__(self, uri: _Optional[str] = ..., secret: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Storage(_message.Message):
    __slots__ = ["size", "storage_class", "claim"]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    STORAGE_CLASS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    size: str
    storage_class: str
    claim: str
    def __init__(self, size: _Optional[str] = ..., storage_class: _Optional[str] = ..., claim: _Optional[str] = ...) -> None: ...
