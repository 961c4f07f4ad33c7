"""Checks whether replicas reach each other: NetworkPolicies, host names and DNS."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from backend_plugin.core.reading import entries, number, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.doctor.pods import RENDEZVOUS
from backend_plugin.doctor.selectors import matches

_INGRESS: Final = "Ingress"
_EGRESS: Final = "Egress"
_DNS_PORT: Final = 53
_LONGEST_HOSTNAME: Final = 64
"""The maximum on Linux; a pod with a longer host name never starts."""
_DOMAIN: Final = "svc.cluster.local"
_ALLOW: Final = (
    "echo '{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: kfpytorch-PURPOSE, "
    "namespace: NAMESPACE}, "
    "spec: {podSelector: {matchLabels: {app.kubernetes.io/managed-by: flytekitplugins-kfpytorch}}, SPEC}}' "
    "| kubectl apply -f -"
)
_PEERS: Final = "[{podSelector: {matchLabels: {app.kubernetes.io/managed-by: flytekitplugins-kfpytorch}}}]"


def _labels(role: RolePods) -> Mapping[str, str]:
    return texts(section(role.pod, "metadata"), "labels")


def _isolating(facts: Facts, role: RolePods, direction: str) -> Sequence[Manifest]:
    """Return the policies that restrict this direction for a role's pods; without any, all is allowed."""
    return [
        each
        for each in facts.of(Subject.POLICIES)
        if matches(section(each, "spec", "podSelector"), _labels(role)) and direction in _types(each)
    ]


def _types(policy: Manifest) -> Sequence[str]:
    said = section(policy, "spec").get("policyTypes")
    if isinstance(said, list | tuple):
        return [each for each in said if isinstance(each, str)]
    return [_INGRESS, _EGRESS] if "egress" in section(policy, "spec") else [_INGRESS]


def _rules(policies: Sequence[Manifest], direction: str) -> Iterator[Manifest]:
    for each in policies:
        yield from entries(section(each, "spec"), direction.lower())


def _is_for(rule: Manifest, side: str, peer: RolePods, facts: Facts) -> bool:
    """True if a rule allows this replica; its IP address is not known in advance."""
    if not rule.get(side):
        return True
    return any(_is_peer(each, peer, facts) for each in entries(rule, side))


def _is_peer(said: Manifest, peer: RolePods, facts: Facts) -> bool:
    if "ipBlock" in said:
        # A pod can have any address, so only a range of all addresses is certain to contain it.
        return text(section(said, "ipBlock"), "cidr") == "0.0.0.0/0"
    if "namespaceSelector" in said and not matches(said["namespaceSelector"], _of_namespace(facts)):
        return False
    return "podSelector" not in said or matches(said["podSelector"], _labels(peer))


def _of_namespace(facts: Facts) -> Mapping[str, str]:
    labels = [texts(section(each, "metadata"), "labels") for each in facts.of(Subject.NAMESPACE)]
    return {"kubernetes.io/metadata.name": facts.namespace, **(labels[0] if labels else {})}


def _has_port(rule: Manifest, port: int) -> bool:
    ports = entries(rule, "ports")
    return not ports or any(_includes(each, port) for each in ports)


def _includes(said: Manifest, port: int) -> bool:
    first = number(said, "port")
    if first is None:
        return "port" not in said
    return first <= port <= (number(said, "endPort") or first)


def _blocked(facts: Facts, direction: str, side: str) -> Iterator[Found]:
    for role in facts.task.roles:
        policies = _isolating(facts, role, direction)
        rules = [*_rules(policies, direction)]
        lost = [
            peer.name
            for peer in facts.task.roles
            if not any(_is_for(each, side, peer, facts) and _has_port(each, RENDEZVOUS) for each in rules)
        ]
        if policies and lost and _is_several(facts):
            names = ", ".join(map(deployments.name, policies))
            way = "receives nothing from" if direction == _INGRESS else "can send nothing to"
            spec = f"policyTypes: [{direction}], {direction.lower()}: [{{{side}: {_PEERS}}}]"
            yield Found(
                sentence=f"the NetworkPolicy {names} isolates the {role.name}, which {way} a "
                f"{lost[0]} on port {RENDEZVOUS}, the rendezvous port",
                remedy=_allowing(facts, direction.lower(), spec),
            )


def _allowing(facts: Facts, purpose: str, spec: str) -> str:
    """Return the command. Each purpose has its own policy, so that no policy replaces another one."""
    written = _ALLOW.replace("NAMESPACE", facts.namespace).replace("PURPOSE", purpose)
    return written.replace("SPEC", spec)


def _is_several(facts: Facts) -> bool:
    return sum(role.count for role in facts.task.roles) > 1


def _unheard(facts: Facts) -> Iterator[Found]:
    yield from _blocked(facts, _INGRESS, "from")


def _unsaid(facts: Facts) -> Iterator[Found]:
    yield from _blocked(facts, _EGRESS, "to")


def _some_ports(facts: Facts) -> Iterator[Found]:
    for role in facts.task.roles if _is_several(facts) else ():
        policies = _isolating(facts, role, _INGRESS)
        rules = [
            each
            for each in _rules(policies, _INGRESS)
            if any(_is_for(each, "from", peer, facts) for peer in facts.task.roles)
        ]
        meet = any(_has_port(each, RENDEZVOUS) for each in rules)
        if meet and all(entries(each, "ports") for each in rules):
            spec = f"policyTypes: [Ingress], ingress: [{{from: {_PEERS}}}]"
            yield Found(
                sentence=f"the NetworkPolicy {', '.join(map(deployments.name, policies))} lets "
                f"replicas connect to the rendezvous port, but allows only certain ports of a {role.name}: "
                f"NCCL and Gloo use random ports",
                remedy=_allowing(facts, "ingress", spec),
            )


def _no_names(facts: Facts) -> Iterator[Found]:
    for role in facts.task.roles if _is_several(facts) else ():
        policies = _isolating(facts, role, _EGRESS)
        if policies and not any(_has_port(each, _DNS_PORT) for each in _rules(policies, _EGRESS)):
            ports = "[{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]"
            spec = f"policyTypes: [Egress], egress: [{{ports: {ports}}}]"
            yield Found(
                sentence=f"the NetworkPolicy {', '.join(map(deployments.name, policies))} allows a "
                f"{role.name} no DNS queries, and replicas find each other by name",
                remedy=_allowing(facts, "dns", spec),
            )


def _no_dns(facts: Facts) -> Iterator[Found]:
    if not facts.of(Subject.DNS):
        yield Found(
            sentence="kube-system has no Service with the label k8s-app=kube-dns, and replicas find "
            "each other by name",
            remedy="kubectl get services,deployments -A | grep -i dns",
        )
        return
    ready = [
        endpoint
        for each in facts.of(Subject.DNS_ENDPOINTS)
        for endpoint in entries(each, "endpoints")
        if section(endpoint, "conditions").get("ready") is not False
    ]
    if not ready:
        yield Found(
            sentence="the cluster's DNS has no ready endpoint, and replicas find each other by name",
            remedy="kubectl get pods -n kube-system -l k8s-app=kube-dns",
        )


def _too_long(facts: Facts) -> Iterator[Found]:
    for role in facts.task.roles:
        name, spec = deployments.name(role.pod), section(role.pod, "spec")
        whole = f"{name}.{text(spec, 'subdomain')}.{facts.namespace}.{_DOMAIN}".replace("..", ".")
        if spec.get("setHostnameAsFQDN") is True and len(whole) > _LONGEST_HOSTNAME:
            yield Found(
                sentence=f"the fully qualified host name of a {role.name} has {len(whole)} characters, "
                f"and the limit is {_LONGEST_HOSTNAME}: the pod would never start",
                remedy="leave setHostnameAsFQDN out of the PodTemplate",
            )


CHECKS: Final = (
    Check(
        id="network-ingress",
        level=Level.ERROR,
        proves="NetworkPolicies allow connections to the rendezvous port of the replicas",
        judge=_unheard,
        needs=(Subject.POLICIES, Subject.ROLES),
    ),
    Check(
        id="network-egress",
        level=Level.ERROR,
        proves="NetworkPolicies allow connections from replica to replica",
        judge=_unsaid,
        needs=(Subject.POLICIES, Subject.ROLES),
    ),
    Check(
        id="network-ports",
        level=Level.WARNING,
        proves="replicas reach each other on every port",
        judge=_some_ports,
        needs=(Subject.POLICIES, Subject.ROLES),
    ),
    Check(
        id="network-dns",
        level=Level.ERROR,
        proves="NetworkPolicies allow the DNS queries of replicas",
        judge=_no_names,
        needs=(Subject.POLICIES, Subject.ROLES),
    ),
    Check(
        id="dns",
        level=Level.WARNING,
        proves="the DNS of the cluster exists and is ready",
        judge=_no_dns,
        needs=(Subject.DNS, Subject.DNS_ENDPOINTS),
    ),
    Check(
        id="hostname-length",
        level=Level.ERROR,
        proves="the host names of pods are not too long for Linux",
        judge=_too_long,
        needs=(Subject.ROLES,),
    ),
)
