"""Encode and decode the key `kfpytorch` in the `custom` field of a task template.

``kfpytorch_idl/v1/task.proto`` defines the format, and ``backend_plugin.core.extension`` reads it. The key
is absent if a config sets no option of this format. The protobuf messages are imported only when the key is
written or read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from flytekit import PodTemplate
from google.protobuf.json_format import MessageToDict, ParseDict

from flytekitplugins.kfpytorch.config import Elastic, Master, PyTorch, Worker
from flytekitplugins.kfpytorch.config_base import ConfigPart
from flytekitplugins.kfpytorch.data_sources import Dataset, Model, Storage
from flytekitplugins.kfpytorch.extension import Gang, TrainJob
from flytekitplugins.kfpytorch.train_job_policies import PodFailurePolicyRule, SuccessPolicy, Topology
from flytekitplugins.kfpytorch.validators import is_list

if TYPE_CHECKING:
    from google.protobuf.message import Message

KEY: Final = "kfpytorch"
VERSION: Final = 1

_ROLE: Final = ("node_selector", "tolerations", "pod_template", "priority_class_name", "num_retries")
_PARTS: Final = (("gang", Gang), ("train_job", TrainJob))


def encode(config: PyTorch | Elastic) -> dict[str, Any]:
    """Encode the fields of `config` that flytekit's own plugin does not have.

    Returns:
        ``{"kfpytorch": ...}``, or an empty dict if none of these fields is set.
    """
    roles = (
        {}
        if isinstance(config, Elastic)
        else {"master": _encode_role(config.master), "worker": _encode_role(config.worker)}
    )
    parts = {
        name: _encode_value(getattr(config, name)) for name, _ in _PARTS if getattr(config, name) is not None
    }
    content = {**{name: role for name, role in roles.items() if role}, **parts}
    if not content:
        return {}
    from kfpytorch_idl.v1 import task_pb2

    message = ParseDict({"version": VERSION, **content}, task_pb2.TaskExtension())
    return {KEY: MessageToDict(message)}


def decode(custom: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the output of `encode`.

    Returns:
        The fields that were set: dicts of role fields under ``master`` and ``worker``, and the configs under
        ``gang`` and ``train_job``.
    """
    if KEY not in custom:
        return {}
    from kfpytorch_idl.v1 import task_pb2

    message = ParseDict(custom[KEY], task_pb2.TaskExtension(), ignore_unknown_fields=True)
    roles = {
        name: _decode_fields(getattr(message, name))
        for name in ("master", "worker")
        if message.HasField(name)
    }
    parts = {
        name: cls(**_decode_fields(getattr(message, name))) for name, cls in _PARTS if message.HasField(name)
    }
    return {**roles, **parts}


def _encode_role(role: Master | Worker) -> dict[str, Any]:
    fields = {name: _encode_value(value) for name in _ROLE if (value := getattr(role, name)) is not None}
    if "pod_template" in fields and isinstance(role.pod_template, PodTemplate):
        fields["pod_template"] = _encode_pod_template(role.pod_template)
    return fields


def _encode_pod_template(template: PodTemplate) -> dict[str, Any]:
    metadata = {
        name: dict(values) for name in ("labels", "annotations") if (values := getattr(template, name))
    }
    return {"metadata": metadata, "spec": _encode_value(template.pod_spec) or {}}


def _encode_value(value: Any) -> Any:
    """Return a value as dicts, lists and scalars, with a kubernetes model as in a manifest."""
    fields = _read_fields(value)
    if fields is not None:
        return {name: _encode_value(item) for name, item in fields.items()}
    return [_encode_value(item) for item in value] if is_list(value) else value


def _read_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a config, or of a kubernetes model by their manifest names, that are not None.

    A dict is returned unchanged. For any other value, return None.
    """
    if isinstance(value, ConfigPart):
        fields = vars(value)
    elif hasattr(value, "attribute_map"):
        fields = {key: getattr(value, name) for name, key in value.attribute_map.items()}
    else:
        return value if isinstance(value, Mapping) else None
    return {name: item for name, item in fields.items() if item is not None}


def _decode_fields(message: "Message") -> dict[str, Any]:
    values = {item.name: getattr(message, item.name) for item, _ in message.ListFields()}
    # `custom` already contains the number, as restart policies and a backoff limit.
    values.pop("num_retries", None)
    return {name: _DECODERS[name](value) if name in _DECODERS else value for name, value in values.items()}


def _decode_tolerations(tolerations: "Sequence[Message]") -> list[dict[str, Any]]:
    return [
        {_KUBERNETES.get(item.name, item.name): value for item, value in toleration.ListFields()}
        for toleration in tolerations
    ]


def _decode_rules(rules: "Sequence[Message]") -> list[PodFailurePolicyRule]:
    return [PodFailurePolicyRule(**_decode_fields(rule)) for rule in rules]


_KUBERNETES: Final = {"toleration_seconds": "tolerationSeconds"}
_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "node_selector": dict,
    "tolerations": _decode_tolerations,
    "pod_template": MessageToDict,
    "packages": list,
    "success_policy": lambda message: SuccessPolicy(**_decode_fields(message)),
    "pod_failure_policy": _decode_rules,
    "topology": lambda message: Topology(**_decode_fields(message)),
    "exit_codes": list,
    "pod_conditions": dict,
    "dataset": lambda message: Dataset(**_decode_fields(message)),
    "model": lambda message: Model(**_decode_fields(message)),
    "storage": lambda message: Storage(**_decode_fields(message)),
    "env": dict,
}
