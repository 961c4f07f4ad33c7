"""Deployments, as far as they tell what runs in a cluster: by images, arguments and how many are ready."""

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
"""What runs propeller, by a part of an image's name."""
_WEBHOOK: Final = "webhook"
"""As what propeller's image runs a second time, for secrets."""
_OF_CHARTS: Final = "1.16.0"
"""The label of Flyte's charts, of whatever version of Flyte."""
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?")


def name(manifest: Manifest) -> str:
    """Of any object."""
    return text(section(manifest, "metadata"), "name")


def namespace(manifest: Manifest) -> str:
    """Of any object."""
    return text(section(manifest, "metadata"), "namespace")


def operators(facts: Facts) -> Sequence[Manifest]:
    """Those that run the training-operator."""
    return [
        each for each in facts.of(Subject.DEPLOYMENTS) if name(each) == _OPERATOR or runs(each, _OPERATOR)
    ]


def connectors(facts: Facts) -> Sequence[Manifest]:
    """Those that run this backend."""
    return [
        each
        for each in facts.of(Subject.DEPLOYMENTS)
        if text(section(each, "metadata", "labels"), _NAME) == _CONNECTOR or runs(each, _CONNECTOR)
    ]


def propellers(facts: Facts) -> Sequence[Manifest]:
    """Those that run Flyte's propeller, alone or with all the rest of Flyte."""
    return [each for each in facts.of(Subject.DEPLOYMENTS) if propeller_image(each)]


def propeller_image(deployment: Manifest) -> str:
    """The one of its images that runs propeller; empty where none does."""
    for each in containers(deployment):
        image = text(each, "image")
        is_webhook = _WEBHOOK in (*_words(each, "command"), *_words(each, "args"))
        if any(program in image_name(image) for program in _FLYTE) and not is_webhook:
            return image
    return ""


def release(deployment: Manifest) -> str:
    """What its label says of its version; empty where it says nothing."""
    return text(section(deployment, "metadata", "labels"), _RELEASE)


def runs(deployment: Manifest, program: str) -> bool:
    """Whether one of its images is called so."""
    return any(program in image_name(text(each, "image")) for each in containers(deployment))


def containers(deployment: Manifest) -> Sequence[Manifest]:
    """Of its pods."""
    return entries(section(deployment, "spec", "template", "spec"), "containers")


def image_name(image: str) -> str:
    """The last part of an image's name, without tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def version(deployment: Manifest) -> tuple[int, int, int] | None:
    """What its image's tag, or else its label, says; None where neither says one."""
    tags = [tag(text(each, "image")) for each in containers(deployment)]
    for said in (*tags, release(deployment)):
        if found := _VERSION.fullmatch(said):
            return int(found[1]), int(found[2]), int(found[3] or 0)
    return None


def flyte_version(deployment: Manifest) -> tuple[int, int, int] | None:
    """Of a propeller: by its own image, and not a sidecar's; of `1.16` the patch is not known."""
    label = release(deployment)
    for said in (tag(propeller_image(deployment)), label if label != _OF_CHARTS else ""):
        if (found := _VERSION.fullmatch(said)) and found[3]:
            return int(found[1]), int(found[2]), int(found[3])
    return None


def tag(image: str) -> str:
    """Of an image's name; empty where it has none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def is_ready(deployment: Manifest) -> bool:
    """Whether at least one of its pods is; one that is scaled to nothing is not."""
    return (number(section(deployment, "status"), "availableReplicas") or 0) > 0


def flag(deployment: Manifest, option: str) -> Sequence[str]:
    """The values of an option of its programs: ``--name=value`` and ``--name value``."""
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
    """As kubectl names it."""
    return f"deployment/{name(deployment)} -n {namespace(deployment)}"
