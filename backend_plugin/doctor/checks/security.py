"""Checks of PodSecurity, ServiceAccounts, image pull Secrets and images."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.embedded.controller.objects import INIT_CONTAINER

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


def _insecure(facts: Facts) -> Iterator[Found]:
    for role, reply in facts.pod_replies.items():
        if _VIOLATES in reply.message:
            said = reply.message[reply.message.index(_VIOLATES) :]
            theirs = f'"{INIT_CONTAINER}"' in said
            relaxed = f"kubectl label namespace {facts.namespace} {_ENFORCE}=baseline --overwrite"
            why = (
                f"{relaxed}  # the container {INIT_CONTAINER} of the operator cannot be configured"
                if theirs
                else ""
            )
            yield Found(sentence=f"a {role} pod {said}", remedy=why or f"{_CONTEXTS}  # or {relaxed}")


def _accounts(facts: Facts) -> Iterator[tuple[RolePods, str]]:
    for role in facts.task.roles:
        yield role, text(section(role.pod, "spec"), "serviceAccountName") or "default"


def _no_account(facts: Facts) -> Iterator[Found]:
    there = set(map(deployments.name, facts.of(Subject.ACCOUNTS)))
    for name in sorted({name for _, name in _accounts(facts)} - there):
        if facts.of(Subject.NAMESPACE):
            yield Found(
                sentence=f"there is no ServiceAccount {name} in {facts.namespace}, so its pods "
                f"cannot be created",
                remedy=f"kubectl create serviceaccount {name} -n {facts.namespace}",
            )


def _no_pull_secret(facts: Facts) -> Iterator[Found]:
    there = set(map(deployments.name, facts.of(Subject.SECRETS)))
    for name in sorted(
        {name for role, account in _accounts(facts) for name in _pulled(facts, role, account)} - there
    ):
        yield Found(
            sentence=f"image pulls need the Secret {name}, which {facts.namespace} does not have",
            remedy=f"kubectl create secret docker-registry {name} -n {facts.namespace} --docker-server=HOST "
            "--docker-username=USER --docker-password=PASSWORD",
        )


def _pulled(facts: Facts, role: RolePods, account: str) -> Sequence[str]:
    """Return the pull Secrets of the pod, or of its ServiceAccount if the pod has none."""
    of_account = [each for each in facts.of(Subject.ACCOUNTS) if deployments.name(each) == account]
    said = entries(section(role.pod, "spec"), "imagePullSecrets")
    found = said or [secret for each in of_account for secret in entries(each, "imagePullSecrets")]
    return [text(each, "name") for each in found if text(each, "name")]


def _containers(role: RolePods) -> Iterator[Manifest]:
    for part in ("initContainers", "containers"):
        yield from entries(section(role.pod, "spec"), part)


def _no_image(facts: Facts) -> Iterator[Found]:
    said = {text(each, "image"): role.name for role in facts.task.roles for each in _containers(role)}
    for image, role in said.items():
        if not _IMAGE.fullmatch(image):
            yield Found(
                sentence=f"the image {image!r} of a {role} is not a reference that a node could pull: "
                f"InvalidImageName",
                remedy="write it as host/path/name:tag, all but the tag in lower case, without blanks and https://",
            )


def _untagged(facts: Facts) -> Iterator[Found]:
    said = {text(each, "image"): role.name for role in facts.task.roles for each in _containers(role)}
    for image, role in said.items():
        last = image.rpartition("/")[2]
        if _IMAGE.fullmatch(image) and (":" not in last or last.endswith(":latest")) and "@" not in last:
            yield Found(
                sentence=f"the image {image} of a {role} has no version: replicas that start "
                f"later may run another",
                remedy=f"write its tag: {image.removesuffix(':latest')}:VERSION",
            )


CHECKS: Final = (
    Check(
        id="pod-security",
        level=Level.ERROR,
        proves="the PodSecurity level of the namespace allows the job's pods, with the operator's additions",
        judge=_insecure,
        needs=(Subject.POD_TRIALS,),
    ),
    Check(
        id="service-account",
        level=Level.ERROR,
        proves="the ServiceAccount of the pods exists",
        judge=_no_account,
        needs=(Subject.ACCOUNTS, Subject.ROLES),
    ),
    Check(
        id="pull-secret",
        level=Level.ERROR,
        proves="the Secrets for image pulls exist",
        judge=_no_pull_secret,
        needs=(Subject.ACCOUNTS, Subject.SECRETS, Subject.ROLES),
    ),
    Check(
        id="image-name",
        level=Level.ERROR,
        proves="image references are valid",
        judge=_no_image,
        needs=(Subject.ROLES,),
    ),
    Check(
        id="image-version",
        level=Level.NOTE,
        proves="image references have a version",
        judge=_untagged,
        needs=(Subject.ROLES,),
    ),
)
