"""Programs of a cluster, recognized from the images, arguments and status of Deployments."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.facts import Facts, Subject

_OPERATOR: Final = "training-operator"
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


def name(manifest: Manifest) -> str:
    """Return the name of any object."""
    return text(section(manifest, "metadata"), "name")


def namespace(manifest: Manifest) -> str:
    """Return the namespace of any object."""
    return text(section(manifest, "metadata"), "namespace")


def operators(facts: Facts) -> Sequence[Manifest]:
    """Return the Deployments that run the training operator."""
    return [
        each for each in facts.of(Subject.DEPLOYMENTS) if name(each) == _OPERATOR or runs(each, _OPERATOR)
    ]


def connectors(facts: Facts) -> Sequence[Manifest]:
    """Return the Deployments that run this connector."""
    return [
        each
        for each in facts.of(Subject.DEPLOYMENTS)
        if text(section(each, "metadata", "labels"), _NAME) == _CONNECTOR or runs(each, _CONNECTOR)
    ]


def propellers(facts: Facts) -> Sequence[Manifest]:
    """Return the Deployments that run FlytePropeller, alone or as part of flyte-binary."""
    return [each for each in facts.of(Subject.DEPLOYMENTS) if propeller_image(each)]


def propeller_image(deployment: Manifest) -> str:
    """Return the image that runs FlytePropeller, or an empty string."""
    for each in containers(deployment):
        image = text(each, "image")
        is_webhook = _WEBHOOK in (*_words(each, "command"), *_words(each, "args"))
        if any(program in image_name(image) for program in _FLYTE) and not is_webhook:
            return image
    return ""


def release(deployment: Manifest) -> str:
    """Return the version label of a Deployment, or an empty string."""
    return text(section(deployment, "metadata", "labels"), _RELEASE)


def runs(deployment: Manifest, program: str) -> bool:
    """True if the name of one of the images contains `program`."""
    return any(program in image_name(text(each, "image")) for each in containers(deployment))


def containers(deployment: Manifest) -> Sequence[Manifest]:
    """Return the containers of the pod template."""
    return entries(section(deployment, "spec", "template", "spec"), "containers")


def image_name(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Return the version in an image tag, else in the version label, or None if neither has one."""
    tags = [tag(text(each, "image")) for each in containers(deployment)]
    for said in (*tags, release(deployment)):
        if found := _VERSION.fullmatch(said):
            return int(found[1]), int(found[2]), int(found[3] or 0)
    return None


def flyte_version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Return the version of FlytePropeller, or None if it is not known with its patch number.

    The tag of its own image comes first, not one of a sidecar. A tag such as `1.16` is not precise enough.
    """
    label = release(deployment)
    for said in (tag(propeller_image(deployment)), label if label != _OF_CHARTS else ""):
        if (found := _VERSION.fullmatch(said)) and found[3]:
            return int(found[1]), int(found[2]), int(found[3])
    return None


def tag(image: str) -> str:
    """Return the tag of an image's name, or an empty string."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def is_ready(deployment: Manifest) -> bool:
    """True if at least one pod is available; false for a Deployment with zero replicas."""
    return (number(section(deployment, "status"), "availableReplicas") or 0) > 0


def flag(deployment: Manifest, option: str) -> Sequence[str]:
    """Return the values of an option in the commands and arguments: ``--name=value`` or ``--name value``."""
    found = []
    for container in containers(deployment):
        words = [*_words(container, "command"), *_words(container, "args")]
        for at, word in enumerate(words):
            if word.startswith(f"--{option}="):
                found.append(word.partition("=")[2])
            elif word == f"--{option}" and at + 1 < len(words):
                found.append(words[at + 1])
    return found


def _words(container: Manifest, key: str) -> Iterator[str]:
    said = container.get(key)
    yield from (each for each in said if isinstance(each, str)) if isinstance(said, list | tuple) else ()


def told(deployment: Manifest) -> str:
    """Return the arguments by which kubectl finds the Deployment."""
    return f"deployment/{name(deployment)} -n {namespace(deployment)}"
