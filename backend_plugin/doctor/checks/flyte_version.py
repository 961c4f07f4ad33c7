"""Checks of the version of Flyte."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.reading import get_mapping, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

_OLDEST: Final = (1, 16, 7)
"""The oldest supported version of Flyte: earlier ones send pods in which placeholders are not filled in."""

CHECKS: Final = CheckList()


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.WARNING)
def _check_flyte_outdated(facts: Facts) -> Iterator[Violation]:
    """Flyte is 1.16.7 or newer."""
    for each in deployments.list_propellers(facts):
        version = deployments.find_flyte_version(each)
        if version is not None and version < _OLDEST:
            yield Violation(
                sentence=f"Flyte is {deployments.format_version(version)}, and a connector needs 1.16.7 or "
                f"newer, which fills in the arguments of all tasks: {deployments.format_kubectl_name(each)}",
                remedy=f"helm upgrade {_format_chart(each)} --repo https://flyteorg.github.io/flyte "
                f"-n {deployments.get_namespace(each)} --version v1.16.8 --reuse-values",
            )


@CHECKS.add(Subject.DEPLOYMENTS, level=Severity.UNKNOWN)
def _check_flyte_version(facts: Facts) -> Iterator[Violation]:
    """The image or a label of Flyte contains its version."""
    for each in deployments.list_propellers(facts):
        if deployments.find_flyte_version(each) is None:
            yield Violation(
                sentence="the version of Flyte is unknown; the image of "
                f"{deployments.format_kubectl_name(each)} is "
                f"{deployments.find_propeller_image(each)}; a connector needs 1.16.7 or newer",
                remedy=f"kubectl label {deployments.format_kubectl_name(each)} --overwrite "
                "app.kubernetes.io/version=1.16.8  # if this is the version",
            )


def _format_chart(deployment: Manifest) -> str:
    """Return the name of the Helm release and of its chart."""
    metadata = get_mapping(deployment, "metadata")
    release = get_text(metadata, "annotations", "meta.helm.sh/release-name")
    release = release or get_text(metadata, "labels", "app.kubernetes.io/instance")
    is_binary = deployments.has_program(deployment, "flyte-binary")
    return f"{release or 'flyte'} {'flyte-binary' if is_binary else 'flyte-core'}"
