"""The metadata of a job and of its pods, including the secrets that Flyte's webhook injects."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from flyteidl.core.security_pb2 import Secret, SecurityContext
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf import text_format

from backend_plugin.core import names, task_annotation
from backend_plugin.core.errors import Problem, check_size
from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.pod_rules import name_rules
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, JsonValue, Manifest

_RFC_4648: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_FLYTES: Final = str.maketrans(_RFC_4648, "abcdefghijklmnopqrstuvwxyz123456", "=")
_LONGEST_LABEL: Final = 63
# The API server's limit for the keys and values of all annotations of an object.
_LARGEST_ANNOTATIONS: Final = 256 * 1024
_RULES: Final = {
    "labels": (name_rules.check_qualified_name, name_rules.check_label_value),
    # The API server ignores the case of the keys of annotations.
    "annotations": (lambda key: name_rules.check_qualified_name(key.lower()), lambda _: []),
}
_NOT_IN_A_LABEL: Final = re.compile("[^-a-z0-9]+")


def build_job_metadata(
    template: TaskTemplate, run: Attempt, deadlines: Deadlines, pod: Manifest, *, longest_name: int
) -> Manifest:
    """Return the metadata of a job, with a name of at most `longest_name` characters.

    The labels and annotations come from the pod, the task template and the execution. A later source in this
    list overrides an earlier one.
    """
    template_metadata = template.metadata.metadata
    metadata = get_mapping(pod, "metadata")
    owners = names.build_owner_references(run.owner)
    return {
        "name": names.job_name(run, longest_name),
        "namespace": run.namespace,
        "labels": {
            **get_mapping(metadata, "labels"),
            **template_metadata.labels,
            **run.labels,
            **names.build_identity_labels(run.output_prefix),
        },
        "annotations": {
            **_without_own_keys(get_mapping(metadata, "annotations")),
            **_without_own_keys(template_metadata.annotations),
            **_without_own_keys(run.annotations),
            names.OUTPUT_PREFIX: run.output_prefix,
            task_annotation.ANNOTATION: task_annotation.encode(run, deadlines, template.config),
        },
        **({"ownerReferences": owners} if owners else {}),
    }


def _without_own_keys(annotations: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the annotations whose keys lack this project's prefix, which only the server may use."""
    return {key: value for key, value in annotations.items() if not key.startswith(names.PREFIX)}


def with_identity(pod: Manifest, run: Attempt) -> Manifest:
    """Return the pod template with the identity label of the job (`names.IDENTITY`)."""
    metadata = get_mapping(pod, "metadata")
    labels = {**get_mapping(metadata, "labels"), names.IDENTITY: names.compute_identity(run.output_prefix)}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def build_execution_metadata(run: Attempt, security: SecurityContext) -> Mapping[str, Mapping[str, str]]:
    """Return the ``labels`` and ``annotations`` that an execution adds to its pods.

    They include the execution's identity, and the descriptions of the secrets that Flyte's webhook injects.
    """
    secrets = {f"flyte.secrets/s{index}": _encode_secret(each) for index, each in enumerate(security.secrets)}
    labels = {**run.labels, **({"inject-flyte-secrets": "true"} if secrets else {})}
    if run.execution_identity:
        label = _NOT_IN_A_LABEL.sub("-", run.execution_identity.lower())
        labels["execution-identity"] = label[:_LONGEST_LABEL].strip("-")
    return {"labels": labels, "annotations": {**run.annotations, **secrets}}


def merge_pod_metadata(layers: Sequence[Fields], settings: Settings) -> dict[str, Any]:
    """Return the labels and annotations of a pod; later layers override earlier layers and `settings`."""
    platform = {"labels": settings.default_labels, "annotations": settings.default_annotations}
    parts = {
        part: {name: value for layer in (platform, *layers) for name, value in layer.get(part, {}).items()}
        for part in platform
    }
    return {part: values for part, values in parts.items() if values}


def check_metadata(metadata: Mapping[str, Mapping[str, str]], path: str) -> Iterator[Problem]:
    """Yield a problem for each label and annotation key that the API server rejects.

    Also yield a problem if the annotations are too large.
    """
    for part, (check_key, check_value) in _RULES.items():
        for key, value in metadata.get(part, {}).items():
            rules = check_key(key)
            if wrong := rules or check_value(value):
                yield build_problem(
                    f"{path}.{part}",
                    key if rules else value,
                    f"would be rejected by the cluster: {wrong[0]}",
                    "correct it; it may be of the execution, the PodTemplate or the settings",
                )
    text = "".join(chain.from_iterable(metadata.get("annotations", {}).items()))
    size = len(text.encode(errors="replace"))
    remedy = "leave some out; they may be of the execution, the PodTemplate or the settings"
    yield from check_size(f"{path}.annotations", size, _LARGEST_ANNOTATIONS, remedy)


def _encode_secret(secret: Secret) -> str:
    """Return the description of a secret in the encoding that Flyte's webhook reads from an annotation."""
    text = text_format.MessageToString(secret, as_utf8=False)
    return base64.b32encode(text.encode()).decode().translate(_FLYTES)
