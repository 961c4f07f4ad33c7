"""Checks of the ConfigMaps, Secrets and PersistentVolumeClaims that pods need to start."""

from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, Subject

_REMEDIES: Final = {
    "ConfigMap": "kubectl create configmap {name} -n {namespace} --from-literal=KEY=VALUE",
    "Secret": "kubectl create secret generic {name} -n {namespace} --from-literal=KEY=VALUE",
    "PersistentVolumeClaim": "echo '{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, "
    "namespace: {namespace}}}, spec: {{accessModes: [ReadWriteMany], resources: {{requests: "
    "{{storage: 10Gi}}}}}}}}' "
    "| kubectl apply -f -",
}
_VOLUME_KEYS: Final = {"Secret": "secretName", "PersistentVolumeClaim": "claimName"}
"""The field of a volume that contains the name of its object, if it is not ``name``."""


def _report_missing(facts: Facts, kind: str, subject: Subject) -> Iterator[Violation]:
    there = set(map(deployments.get_name, facts.get_objects(subject)))
    for name in sorted(_list_names(facts, kind) - there):
        yield Violation(
            sentence=f"pods need the {kind} {name}, which {facts.namespace} does not have, and "
            f"would not start",
            remedy=_REMEDIES[kind].format(name=name, namespace=facts.namespace),
        )


def _list_names(facts: Facts, kind: str) -> set[str]:
    """Return the names of the objects of a kind that the pods require."""
    specs = [get_mapping(role.pod, "spec") for role in facts.task.roles]
    return {each for spec in specs for each in _iter_references(spec, kind)} - {""}


def _list_named_claims(facts: Facts) -> Sequence[Manifest]:
    wanted = _list_names(facts, "PersistentVolumeClaim")
    return [each for each in facts.get_objects(Subject.CLAIMS) if deployments.get_name(each) in wanted]


def _iter_references(spec: Manifest, kind: str) -> Iterator[str]:
    for volume in get_mappings(spec, "volumes"):
        yield from _iter_volume_references(volume, kind)
    for container in [*get_mappings(spec, "initContainers"), *get_mappings(spec, "containers")]:
        for source in get_mappings(container, "envFrom"):
            yield _get_required_name(get_mapping(source, _lower_first(kind) + "Ref"), "name")
        for variable in get_mappings(container, "env"):
            yield _get_required_name(
                get_mapping(variable, "valueFrom", _lower_first(kind) + "KeyRef"), "name"
            )


def _iter_volume_references(volume: Manifest, kind: str) -> Iterator[str]:
    key = _VOLUME_KEYS.get(kind, "name")
    yield _get_required_name(get_mapping(volume, _lower_first(kind)), key)
    for source in get_mappings(volume, "projected", "sources"):
        yield _get_required_name(get_mapping(source, _lower_first(kind)), "name")


def _get_required_name(source: Manifest, key: str) -> str:
    return "" if source.get("optional") is True else get_text(source, key)


def _lower_first(kind: str) -> str:
    return kind[:1].lower() + kind[1:]


CHECKS: Final = CheckList()


@CHECKS.add(Subject.CONFIG_MAPS, Subject.ROLES)
def _check_config_map_missing(facts: Facts) -> Iterator[Violation]:
    """The ConfigMaps that pods name exist."""
    yield from _report_missing(facts, "ConfigMap", Subject.CONFIG_MAPS)


@CHECKS.add(Subject.SECRETS, Subject.ROLES)
def _check_secret_missing(facts: Facts) -> Iterator[Violation]:
    """The Secrets that pods name exist."""
    yield from _report_missing(facts, "Secret", Subject.SECRETS)


@CHECKS.add(Subject.CLAIMS, Subject.ROLES)
def _check_volume_claim_missing(facts: Facts) -> Iterator[Violation]:
    """The PersistentVolumeClaims that pods name exist."""
    yield from _report_missing(facts, "PersistentVolumeClaim", Subject.CLAIMS)


@CHECKS.add(Subject.CLAIMS, Subject.ROLES)
def _check_volume_unbound(facts: Facts) -> Iterator[Violation]:
    """No PersistentVolumeClaim that pods name has lost its volume."""
    for each in _list_named_claims(facts):
        if get_text(each, "status", "phase") == "Lost":
            yield Violation(
                sentence=f"the PersistentVolumeClaim {deployments.get_name(each)} has lost its volume",
                remedy=f"kubectl describe pvc {deployments.get_name(each)} -n {facts.namespace}",
            )


@CHECKS.add(Subject.CLAIMS, Subject.ROLES, level=Severity.WARNING)
def _check_volume_shared(facts: Facts) -> Iterator[Violation]:
    """Several nodes can mount the volumes that several replicas mount."""
    for each in _list_named_claims(facts) if role_pods.has_several_pods(facts.task) else ():
        modes = get_mapping(each, "spec").get("accessModes")
        if isinstance(modes, list | tuple) and set(modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}:
            yield Violation(
                sentence=f"the PersistentVolumeClaim {deployments.get_name(each)} can be mounted by only "
                "one node, but replicas of the job run on several nodes",
                remedy="claim a volume with accessModes: [ReadWriteMany], or [ReadOnlyMany] for data",
            )
