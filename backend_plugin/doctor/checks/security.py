"""Checks of PodSecurity, ServiceAccounts, image pull Secrets and images."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, RolePods, Subject

_VIOLATES: Final = "violates PodSecurity"
_CONTEXTS: Final = (
    "write plugins: {k8s: {default-pod-security-context: {runAsNonRoot: true, runAsUser: 1000, "
    "seccompProfile: {type: RuntimeDefault}}, default-security-context: {allowPrivilegeEscalation: false, "
    "capabilities: {drop: [ALL]}}}}"
)
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_IMAGE: Final = re.compile(
    r"(?=.{1,600}\Z)(?:(?P<host>[A-Za-z0-9.-]+(?::\d+)?)/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{32,})?"
)

CHECKS: Final = CheckList()


@CHECKS.add(Subject.POD_TRIALS)
def _check_pod_security(facts: Facts) -> Iterator[Violation]:
    """The PodSecurity level of the namespace allows the job's pods, with the operator's additions."""
    for role, reply in facts.pod_replies.items():
        if _VIOLATES in reply.message:
            violations = reply.message[reply.message.index(_VIOLATES) :]
            of_operator = [
                each for each in facts.task.dialect.operator_containers if f'"{each}"' in violations
            ]
            relaxed = f"kubectl label namespace {facts.namespace} {_ENFORCE}=baseline --overwrite"
            why = (
                f"{relaxed}  # the container {of_operator[0]} of the operator cannot be configured"
                if of_operator
                else ""
            )
            yield Violation(
                sentence=f"a {role} pod {violations}", remedy=why or f"{_CONTEXTS}  # or {relaxed}"
            )


def _iter_accounts(facts: Facts) -> Iterator[tuple[RolePods, str]]:
    for role in facts.task.roles:
        yield role, get_text(role.pod, "spec", "serviceAccountName") or "default"


@CHECKS.add(Subject.ACCOUNTS, Subject.ROLES)
def _check_service_account_missing(facts: Facts) -> Iterator[Violation]:
    """The ServiceAccount of the pods exists."""
    existing = set(map(deployments.get_name, facts.get_objects(Subject.ACCOUNTS)))
    for name in sorted({name for _, name in _iter_accounts(facts)} - existing):
        if facts.get_objects(Subject.NAMESPACE):
            yield Violation(
                sentence=f"there is no ServiceAccount {name} in {facts.namespace}, so its pods "
                f"cannot be created",
                remedy=f"kubectl create serviceaccount {name} -n {facts.namespace}",
            )


@CHECKS.add(Subject.ACCOUNTS, Subject.SECRETS, Subject.ROLES)
def _check_pull_secret_missing(facts: Facts) -> Iterator[Violation]:
    """The Secrets for image pulls exist."""
    existing = set(map(deployments.get_name, facts.get_objects(Subject.SECRETS)))
    for name in sorted(
        {name for role, account in _iter_accounts(facts) for name in _list_pull_secrets(facts, role, account)}
        - existing
    ):
        yield Violation(
            sentence=f"image pulls need the Secret {name}, which {facts.namespace} does not have",
            remedy=f"kubectl create secret docker-registry {name} -n {facts.namespace} --docker-server=HOST "
            "--docker-username=USER --docker-password=PASSWORD",
        )


def _list_pull_secrets(facts: Facts, role: RolePods, account: str) -> Sequence[str]:
    """Return the pull Secrets of the pod, or of its ServiceAccount if the pod has none."""
    of_account = [
        each for each in facts.get_objects(Subject.ACCOUNTS) if deployments.get_name(each) == account
    ]
    of_pod = get_mappings(role.pod, "spec", "imagePullSecrets")
    secrets = of_pod or [secret for each in of_account for secret in get_mappings(each, "imagePullSecrets")]
    return [get_text(each, "name") for each in secrets if get_text(each, "name")]


def _map_images(facts: Facts) -> Mapping[str, str]:
    """Return the images of the job, each with the last role that uses it."""
    return {
        get_text(each, "image"): role.name
        for role in facts.task.roles
        for part in ("initContainers", "containers")
        for each in get_mappings(role.pod, "spec", part)
    }


@CHECKS.add(Subject.ROLES)
def _check_image_reference_invalid(facts: Facts) -> Iterator[Violation]:
    """Image references are valid."""
    for image, role in _map_images(facts).items():
        if not _IMAGE.fullmatch(image):
            yield Violation(
                sentence=f"the image {image!r} of a {role} is not a reference that a node could pull: "
                f"InvalidImageName",
                remedy="write it as host/path/name:tag, all but the tag in lower case, without blanks and https://",
            )


@CHECKS.add(Subject.ROLES, level=Severity.NOTE)
def _check_image_tag_missing(facts: Facts) -> Iterator[Violation]:
    """Image references have a version."""
    for image, role in _map_images(facts).items():
        last = image.rpartition("/")[2]
        if _IMAGE.fullmatch(image) and (":" not in last or last.endswith(":latest")) and "@" not in last:
            yield Violation(
                sentence=f"the image {image} of a {role} has no version: replicas that start "
                f"later may run another",
                remedy=f"write its tag: {image.removesuffix(':latest')}:VERSION",
            )
