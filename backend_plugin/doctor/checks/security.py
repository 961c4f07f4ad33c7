"""Checks of PodSecurity, ServiceAccounts, image pull Secrets and images."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import CheckList, Violation
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
    """Check that the namespace's PodSecurity level allows the job's pods and the operator's containers."""
    for role, reply in facts.pod_replies.items():
        if _VIOLATES in reply.message:
            violations = reply.message[reply.message.index(_VIOLATES) :]
            of_operator = [
                each for each in facts.task.dialect.operator_containers if f'"{each}"' in violations
            ]
            relaxed = f"kubectl label namespace {facts.namespace} {_ENFORCE}=baseline --overwrite"
            remedy = f"{_CONTEXTS}  # or {relaxed}"
            if of_operator:
                remedy = f"{relaxed}  # the container {of_operator[0]} of the operator cannot be configured"
            yield Violation(f"a {role} pod {violations}", remedy)


def _get_account(role: RolePods) -> str:
    return get_text(role.spec, "serviceAccountName") or "default"


@CHECKS.add(Subject.ACCOUNTS, Subject.ROLES)
def _check_service_account_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the ServiceAccount of the pods exists."""
    for name in facts.list_missing_names(Subject.ACCOUNTS, map(_get_account, facts.task.roles)):
        if facts.get_objects(Subject.NAMESPACE):
            yield Violation(
                f"there is no ServiceAccount {name} in {facts.namespace}, so its pods cannot be created",
                f"kubectl create serviceaccount {name} -n {facts.namespace}",
            )


@CHECKS.add(Subject.ACCOUNTS, Subject.SECRETS, Subject.ROLES)
def _check_pull_secret_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the Secrets for image pulls exist."""
    names = [name for role in facts.task.roles for name in _list_pull_secrets(facts, role)]
    for name in facts.list_missing_names(Subject.SECRETS, names):
        yield Violation(
            f"image pulls need the Secret {name}, which {facts.namespace} does not have",
            f"kubectl create secret docker-registry {name} -n {facts.namespace} --docker-server=HOST "
            "--docker-username=USER --docker-password=PASSWORD",
        )


def _list_pull_secrets(facts: Facts, role: RolePods) -> Sequence[str]:
    """Return the names of the pull Secrets in the pod spec of the role, or else of its ServiceAccount."""
    account = facts.find_object(Subject.ACCOUNTS, _get_account(role))
    secrets = get_mappings(role.spec, "imagePullSecrets") or get_mappings(account, "imagePullSecrets")
    return [get_text(each, "name") for each in secrets]


@CHECKS.add(Subject.ROLES)
def _check_image_reference_invalid(facts: Facts) -> Iterator[Violation]:
    """Check that image references are valid."""
    for role in facts.task.roles:
        for image in sorted({get_text(each, "image") for each in deployments.list_pod_containers(role.spec)}):
            if not _IMAGE.fullmatch(image):
                yield Violation(
                    f"the image {image!r} of a {role.name} is not a reference that a node could pull: "
                    "InvalidImageName",
                    "write it as host/path/name:tag, all but the tag in lower case, without blanks and "
                    "https://",
                )
