"""Checks of the ConfigMaps, Secrets and PersistentVolumeClaims that pods need to start."""

from collections.abc import Iterable, Iterator
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_texts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject
from backend_plugin.doctor.kubectl_commands import build_apply_command
from backend_plugin.doctor.operators.table import get_operator

_REMEDIES: Final = {
    "ConfigMap": "kubectl create configmap {name} -n {namespace} --from-literal=KEY=VALUE",
    "Secret": "kubectl create secret generic {name} -n {namespace} --from-literal=KEY=VALUE",
    "PersistentVolumeClaim": build_apply_command(
        "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, namespace: {namespace}}}, "
        "spec: {{accessModes: [ReadWriteMany], resources: {{requests: {{storage: 10Gi}}}}}}}}"
    ),
}
_VOLUME_KEYS: Final = {"Secret": "secretName", "PersistentVolumeClaim": "claimName"}
"""The field of a volume that contains the name of the Secret or claim. For other kinds, it is ``name``."""


def _report_missing(
    facts: Facts, kind: str, subject: Subject, others: Iterable[str] = ()
) -> Iterator[Violation]:
    """Yield a violation for each object of `kind` that pods need and that does not exist.

    Pods need the objects that their specs name and do not mark as optional, and those named in `others`. The
    existing objects are `facts.get_objects(subject)`.
    """
    for name in facts.list_missing_names(subject, {*_list_names(facts, kind), *others}):
        yield Violation(
            f"pods need the {kind} {name}, which {facts.namespace} does not have, and would not start",
            _REMEDIES[kind].format(name=name, namespace=facts.namespace),
        )


def _list_names(facts: Facts, kind: str) -> set[str]:
    sources = [each for role in facts.task.roles for each in _iter_sources(role.spec, kind)]
    return {get_text(source, key) for source, key in sources if source.get("optional") is not True}


def _iter_sources(spec: Manifest, kind: str) -> Iterator[tuple[Manifest, str]]:
    """Yield each reference to a `kind` in a pod spec, and the key at which it contains the object's name.

    For example, the key of a Secret is ``secretName`` in a volume, and ``name`` in an environment variable.
    An empty mapping stands for an absent reference.
    """
    field = kind[:1].lower() + kind[1:]
    for volume in get_mappings(spec, "volumes"):
        yield get_mapping(volume, field), _VOLUME_KEYS.get(kind, "name")
        for each in get_mappings(volume, "projected", "sources"):
            yield get_mapping(each, field), "name"
    for container in deployments.list_pod_containers(spec):
        for each in get_mappings(container, "envFrom"):
            yield get_mapping(each, f"{field}Ref"), "name"
        for each in get_mappings(container, "env"):
            yield get_mapping(each, "valueFrom", f"{field}KeyRef"), "name"


CHECKS: Final = CheckList()


@CHECKS.add(Subject.CONFIG_MAPS, Subject.ROLES)
def _check_config_map_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the ConfigMaps that pods reference and do not mark as optional exist."""
    yield from _report_missing(facts, "ConfigMap", Subject.CONFIG_MAPS)


@CHECKS.add(Subject.SECRETS, Subject.ROLES)
def _check_secret_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the Secrets that pods reference and do not mark as optional exist."""
    job = facts.task.job
    others = () if job is None else get_operator(facts.task.dialect).list_secrets(job)
    yield from _report_missing(facts, "Secret", Subject.SECRETS, others)


@CHECKS.add(Subject.CLAIMS, Subject.ROLES)
def _check_volume_claim_missing(facts: Facts) -> Iterator[Violation]:
    """Check that the PersistentVolumeClaims that pods name exist."""
    yield from _report_missing(facts, "PersistentVolumeClaim", Subject.CLAIMS)


@CHECKS.add(Subject.CLAIMS, Subject.ROLES, level=Severity.WARNING)
def _check_volume_shared(facts: Facts) -> Iterator[Violation]:
    """Check that several nodes can mount each PersistentVolumeClaim of a job with several pods."""
    if not role_pods.has_several_pods(facts.task):
        return
    for name in sorted(_list_names(facts, "PersistentVolumeClaim")):
        modes = get_texts(facts.find_object(Subject.CLAIMS, name), "spec", "accessModes")
        if modes and set(modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}:
            yield Violation(
                f"the PersistentVolumeClaim {name} can be mounted by only one node, "
                "but replicas of the job run on several nodes",
                "claim a volume with accessModes: [ReadWriteMany], or [ReadOnlyMany] for data",
            )
