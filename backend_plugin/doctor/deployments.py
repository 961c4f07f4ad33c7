"""Reads Deployments: the programs that they run, with their versions, arguments and readiness."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_texts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import Facts, Subject

_CONNECTOR: Final = "kfpytorch-backend"
_NAME: Final = "app.kubernetes.io/name"
_RELEASE: Final = "app.kubernetes.io/version"
_FLYTE: Final = ("flyte-binary", "flytepropeller")
"""Parts of the names of images that run FlytePropeller."""
_WEBHOOK: Final = "webhook"
"""The argument with which FlytePropeller's image runs as the webhook for secrets."""
_OF_CHARTS: Final = "1.16.0"
"""The version label of Flyte's charts, which is the same for several versions of Flyte."""
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?")


def get_name(manifest: Manifest) -> str:
    """Return the name of any object."""
    return get_text(manifest, "metadata", "name")


def get_namespace(manifest: Manifest) -> str:
    """Return the namespace of any object."""
    return get_text(manifest, "metadata", "namespace")


def list_pod_containers(spec: Manifest) -> Sequence[Manifest]:
    """Return the init containers and the containers of a pod spec."""
    return [*get_mappings(spec, "initContainers"), *get_mappings(spec, "containers")]


def format_version(version: Iterable[int]) -> str:
    """Return a version with dots between its numbers."""
    return ".".join(map(str, version))


def list_connectors(facts: Facts) -> Sequence[Manifest]:
    """Return the Deployments that run this connector."""
    return [
        each
        for each in facts.get_objects(Subject.DEPLOYMENTS)
        if get_text(each, "metadata", "labels", _NAME) == _CONNECTOR or has_program(each, _CONNECTOR)
    ]


def list_propellers(facts: Facts) -> Sequence[Manifest]:
    """Return the Deployments that run FlytePropeller, alone or as part of flyte-binary."""
    return [each for each in facts.get_objects(Subject.DEPLOYMENTS) if find_propeller_image(each)]


def find_propeller_image(deployment: Manifest) -> str:
    """Return the image that runs FlytePropeller, or an empty string."""
    for each in _list_containers(deployment):
        image = get_text(each, "image")
        is_webhook = _WEBHOOK in (*get_texts(each, "command"), *get_texts(each, "args"))
        if any(program in _parse_image(image)[0] for program in _FLYTE) and not is_webhook:
            return image
    return ""


def get_release(deployment: Manifest) -> str:
    """Return the version label of a Deployment, or an empty string."""
    return get_text(deployment, "metadata", "labels", _RELEASE)


def has_program(deployment: Manifest, program: str) -> bool:
    """True if the image name of one of the Deployment's containers contains `program`."""
    return any(program in _parse_image(get_text(each, "image"))[0] for each in _list_containers(deployment))


def _list_containers(deployment: Manifest) -> Sequence[Manifest]:
    return get_mappings(deployment, "spec", "template", "spec", "containers")


def _parse_image(image: str) -> tuple[str, str]:
    """Return the last part of an image's name, and its tag or an empty string."""
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    return name, tag


def find_version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Return the version in the first image tag with a version, or else in the version label, or None."""
    tags = [_parse_image(get_text(each, "image"))[1] for each in _list_containers(deployment)]
    for match in map(_VERSION.fullmatch, (*tags, get_release(deployment))):
        if match:
            return int(match[1]), int(match[2]), int(match[3] or 0)
    return None


def find_flyte_version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Return the version of FlytePropeller, or None if its patch number is unknown, as with the tag `1.16`.

    The tag of FlytePropeller's image takes precedence over the version label. Sidecars are ignored.
    """
    tag, label = _parse_image(find_propeller_image(deployment))[1], get_release(deployment)
    for match in map(_VERSION.fullmatch, (tag, label if label != _OF_CHARTS else "")):
        if match and match[3]:
            return int(match[1]), int(match[2]), int(match[3])
    return None


def is_ready(deployment: Manifest) -> bool:
    """True if at least one pod is available; false for a Deployment with zero replicas."""
    return (get_int(deployment, "status", "availableReplicas") or 0) > 0


def has_ready_endpoint(slices: Iterable[Manifest]) -> bool:
    """True if one of these EndpointSlices has an endpoint that is ready."""
    endpoints = [endpoint for each in slices for endpoint in get_mappings(each, "endpoints")]
    return any(get_mapping(each, "conditions").get("ready") is not False for each in endpoints)


def list_flag_values(deployment: Manifest, option: str) -> Sequence[str]:
    """Return the values of `option` in the commands and args of a pod: ``--x=value`` or ``--x value``."""
    values: list[str] = []
    names = (f"-{option}", f"--{option}")  # Go accepts one dash or two.
    for word, following in _iter_arguments(deployment):
        name, equals, value = word.partition("=")
        if name in names and (equals or following):
            values.append(value if equals else following)
    return values


def _iter_arguments(deployment: Manifest) -> Iterator[tuple[str, str]]:
    """Yield each word of the commands and args of the containers, with the next word or an empty string."""
    for each in _list_containers(deployment):
        yield from pairwise([*get_texts(each, "command"), *get_texts(each, "args"), ""])


def format_kubectl_name(deployment: Manifest) -> str:
    """Return the arguments by which kubectl finds the Deployment, ``deployment/NAME -n NAMESPACE``."""
    return f"deployment/{get_name(deployment)} -n {get_namespace(deployment)}"
