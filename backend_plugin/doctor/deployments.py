"""Reads Deployments: the programs that they run, with their versions, arguments and readiness."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
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


def find_by_name(manifests: Iterable[Manifest], name: str) -> Manifest | None:
    """Return the first object with this name, or None."""
    return next((each for each in manifests if get_name(each) == name), None)


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
    for each in list_containers(deployment):
        image = get_text(each, "image")
        is_webhook = _WEBHOOK in (*_iter_words(each, "command"), *_iter_words(each, "args"))
        if any(program in parse_image_name(image) for program in _FLYTE) and not is_webhook:
            return image
    return ""


def get_release(deployment: Manifest) -> str:
    """Return the version label of a Deployment, or an empty string."""
    return get_text(deployment, "metadata", "labels", _RELEASE)


def has_program(deployment: Manifest, program: str) -> bool:
    """True if the name of one of the images contains `program`."""
    return any(program in parse_image_name(get_text(each, "image")) for each in list_containers(deployment))


def list_containers(deployment: Manifest) -> Sequence[Manifest]:
    """Return the containers of the pod template."""
    return get_mappings(deployment, "spec", "template", "spec", "containers")


def parse_image_name(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def find_version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Return the version in an image tag, else in the version label, or None if neither has one."""
    tags = [parse_tag(get_text(each, "image")) for each in list_containers(deployment)]
    for text in (*tags, get_release(deployment)):
        if match := _VERSION.fullmatch(text):
            return int(match[1]), int(match[2]), int(match[3] or 0)
    return None


def find_flyte_version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Return the version of FlytePropeller, or None if its patch number is unknown, as with the tag `1.16`.

    The tag of FlytePropeller's image takes precedence over the version label. Sidecars are ignored.
    """
    label = get_release(deployment)
    for text in (parse_tag(find_propeller_image(deployment)), label if label != _OF_CHARTS else ""):
        if (match := _VERSION.fullmatch(text)) and match[3]:
            return int(match[1]), int(match[2]), int(match[3])
    return None


def parse_tag(image: str) -> str:
    """Return the tag of an image's name, or an empty string."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def is_ready(deployment: Manifest) -> bool:
    """True if at least one pod is available; false for a Deployment with zero replicas."""
    return (get_int(deployment, "status", "availableReplicas") or 0) > 0


def has_ready_endpoint(slices: Iterable[Manifest]) -> bool:
    """True if one of these EndpointSlices has an endpoint that is ready."""
    return any(
        get_mapping(endpoint, "conditions").get("ready") is not False
        for each in slices
        for endpoint in get_mappings(each, "endpoints")
    )


def list_flag_values(deployment: Manifest, option: str) -> Sequence[str]:
    """Return the values of an option in the commands and arguments: ``--name=value`` or ``--name value``."""
    values = []
    for container in list_containers(deployment):
        words = [*_iter_words(container, "command"), *_iter_words(container, "args")]
        for at, word in enumerate(words):
            if word.startswith(f"--{option}="):
                values.append(word.partition("=")[2])
            elif word == f"--{option}" and at + 1 < len(words):
                values.append(words[at + 1])
    return values


def _iter_words(container: Manifest, key: str) -> Iterator[str]:
    words = container.get(key)
    yield from (each for each in words if isinstance(each, str)) if isinstance(words, list | tuple) else ()


def format_kubectl_name(deployment: Manifest) -> str:
    """Return the arguments by which kubectl finds the Deployment."""
    return f"deployment/{get_name(deployment)} -n {get_namespace(deployment)}"
