"""Checks of the namespace objects that pods reference and cannot start without."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject

_REMEDIES: Final = {
    "ConfigMap": "kubectl create configmap {name} -n {namespace} --from-literal=KEY=VALUE",
    "Secret": "kubectl create secret generic {name} -n {namespace} --from-literal=KEY=VALUE",
    "PersistentVolumeClaim": "echo '{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, "
    "namespace: {namespace}}}, spec: {{accessModes: [ReadWriteMany], resources: {{requests: "
    "{{storage: 10Gi}}}}}}}}' "
    "| kubectl apply -f -",
}


def _missing(facts: Facts, kind: str, subject: Subject) -> Iterator[Found]:
    there = set(map(deployments.name, facts.of(subject)))
    named = {each for role in facts.task.roles for each in _named(section(role.pod, "spec"), kind)}
    for name in sorted(named - there - {""}):
        yield Found(
            sentence=f"pods need the {kind} {name}, which {facts.namespace} does not have, and "
            f"would not start",
            remedy=_REMEDIES[kind].format(name=name, namespace=facts.namespace),
        )


def _named(spec: Manifest, kind: str) -> Iterator[str]:
    for volume in entries(spec, "volumes"):
        yield from _of_volume(volume, kind)
    for container in [*entries(spec, "initContainers"), *entries(spec, "containers")]:
        for source in entries(container, "envFrom"):
            yield _required(section(source, _lower(kind) + "Ref"), "name")
        for variable in entries(container, "env"):
            yield _required(section(variable, "valueFrom", _lower(kind) + "KeyRef"), "name")


def _of_volume(volume: Manifest, kind: str) -> Iterator[str]:
    key = "secretName" if kind == "Secret" else "claimName" if kind == "PersistentVolumeClaim" else "name"
    yield _required(section(volume, _lower(kind)), key)
    for source in entries(section(volume, "projected"), "sources"):
        yield _required(section(source, _lower(kind)), "name")


def _required(source: Manifest, key: str) -> str:
    return "" if source.get("optional") is True else text(source, key)


def _lower(kind: str) -> str:
    return kind[:1].lower() + kind[1:]


def _no_config(facts: Facts) -> Iterator[Found]:
    yield from _missing(facts, "ConfigMap", Subject.CONFIG_MAPS)


def _no_secret(facts: Facts) -> Iterator[Found]:
    yield from _missing(facts, "Secret", Subject.SECRETS)


def _no_claim(facts: Facts) -> Iterator[Found]:
    yield from _missing(facts, "PersistentVolumeClaim", Subject.CLAIMS)


def _unbound(facts: Facts) -> Iterator[Found]:
    wanted = {
        each
        for role in facts.task.roles
        for each in _named(section(role.pod, "spec"), "PersistentVolumeClaim")
    }
    for each in facts.of(Subject.CLAIMS):
        if deployments.name(each) in wanted and text(section(each, "status"), "phase") == "Lost":
            yield Found(
                sentence=f"the PersistentVolumeClaim {deployments.name(each)} has lost its volume",
                remedy=f"kubectl describe pvc {deployments.name(each)} -n {facts.namespace}",
            )


def _shared(facts: Facts) -> Iterator[Found]:
    """Report a volume for one node that is used by replicas on possibly several nodes."""
    several = sum(role.count for role in facts.task.roles) > 1
    wanted = {
        each
        for role in facts.task.roles
        for each in _named(section(role.pod, "spec"), "PersistentVolumeClaim")
    }
    for each in facts.of(Subject.CLAIMS) if several else ():
        modes = section(each, "spec").get("accessModes")
        alone = isinstance(modes, list | tuple) and set(modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}
        if deployments.name(each) in wanted and alone:
            yield Found(
                sentence=f"the PersistentVolumeClaim {deployments.name(each)} can be mounted by only "
                "one node, but replicas of the job run on several nodes",
                remedy="claim a volume with accessModes: [ReadWriteMany], or [ReadOnlyMany] for data",
            )


CHECKS: Final = (
    Check(
        id="config-map",
        level=Level.ERROR,
        proves="the ConfigMaps that pods name exist",
        judge=_no_config,
        needs=(Subject.CONFIG_MAPS, Subject.ROLES),
    ),
    Check(
        id="secret",
        level=Level.ERROR,
        proves="the Secrets that pods name exist",
        judge=_no_secret,
        needs=(Subject.SECRETS, Subject.ROLES),
    ),
    Check(
        id="volume-claim",
        level=Level.ERROR,
        proves="the PersistentVolumeClaims that pods name exist",
        judge=_no_claim,
        needs=(Subject.CLAIMS, Subject.ROLES),
    ),
    Check(
        id="volume-lost",
        level=Level.ERROR,
        proves="the PersistentVolumeClaims that pods name have their volumes",
        judge=_unbound,
        needs=(Subject.CLAIMS, Subject.ROLES),
    ),
    Check(
        id="volume-shared",
        level=Level.WARNING,
        proves="several nodes can mount the volumes that several replicas mount",
        judge=_shared,
        needs=(Subject.CLAIMS, Subject.ROLES),
    ),
)
