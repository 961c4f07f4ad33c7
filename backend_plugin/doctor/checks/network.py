"""Checks whether replicas reach each other: NetworkPolicies, host names and DNS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map, get_texts
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.doctor import deployments, role_pods
from backend_plugin.doctor.check import CheckList, Severity, Violation
from backend_plugin.doctor.facts import Facts, RolePods, Subject
from backend_plugin.doctor.kubectl_commands import build_apply_command
from backend_plugin.embedded.node_affinity import is_requirement_met

_INGRESS: Final = "Ingress"
_EGRESS: Final = "Egress"
_DNS_PORT: Final = 53
_DNS_PORT_NAMES: Final = frozenset({("dns", _DNS_PORT), ("dns-tcp", _DNS_PORT)})
"""The names of the DNS ports of CoreDNS, as kubeadm and most distributions install it."""
_RANDOM_PORTS: Final = (32_768, 60_999)
"""The range from which Linux selects a port if a program requests none (net.ipv4.ip_local_port_range)."""
_LAST_PORT: Final = 65_535
_LONGEST_HOSTNAME: Final = 64
"""The maximum length of a host name on Linux; a pod with a longer host name never starts."""
_DOMAIN: Final = "svc.cluster.local"
_SELECTOR: Final = "podSelector: {matchLabels: {app.kubernetes.io/managed-by: flytekitplugins-kfpytorch}}"
_PEERS: Final = f"[{{{_SELECTOR}}}]"


def is_match(selector: JsonValue, labels: Mapping[str, str]) -> bool:
    """True if a selector matches the labels; an empty one matches everything, a missing one nothing."""
    if not isinstance(selector, Mapping):
        return False
    required = get_text_map(selector, "matchLabels")
    if any(labels.get(key) != value for key, value in required.items()):
        return False
    return all(is_requirement_met(each, labels) for each in get_mappings(selector, "matchExpressions"))


def _get_labels(role: RolePods) -> Mapping[str, str]:
    return get_text_map(role.pod, "metadata", "labels")


def _list_policy_types(policy: Manifest) -> Sequence[str]:
    spec = get_mapping(policy, "spec")
    usual = [_INGRESS, _EGRESS] if "egress" in spec else [_INGRESS]
    return get_texts(spec, "policyTypes") or usual


def _list_rules(policies: Sequence[Manifest], direction: str) -> Sequence[Manifest]:
    return [rule for each in policies for rule in get_mappings(each, "spec", direction.lower())]


def _is_allowed(rule: Manifest, side: str, peer: RolePods, facts: Facts) -> bool:
    """True if a policy rule's `side` (``from`` or ``to``) allows the pods of role `peer` at any address."""
    return not rule.get(side) or any(_is_peer(each, peer, facts) for each in get_mappings(rule, side))


def _is_peer(selector: Manifest, peer: RolePods, facts: Facts) -> bool:
    if "ipBlock" in selector:
        # A pod can have any address that is not link-local, so only a range of all these is certain to
        # contain it. Policies often exclude the link-local address of a cloud's metadata, 169.254.169.254.
        block = get_mapping(selector, "ipBlock")
        excluded = [each for each in get_texts(block, "except") if not each.startswith("169.254.")]
        return get_text(block, "cidr") == "0.0.0.0/0" and not excluded
    namespace = facts.find_object(Subject.NAMESPACE, facts.namespace)
    labels = {"kubernetes.io/metadata.name": facts.namespace, **get_text_map(namespace, "metadata", "labels")}
    of_namespace, of_pod = selector.get("namespaceSelector", {}), selector.get("podSelector", {})
    return is_match(of_namespace, labels) and is_match(of_pod, _get_labels(peer))


def _allow_ports(
    rules: Iterable[Manifest], wanted: tuple[int, int], facts: Facts, protocol: str = "TCP"
) -> bool:
    """True if the rules together allow all ports from the first to the last one of `wanted`."""
    entries = [get_mappings(rule, "ports") for rule in rules]
    if not all(entries):  # A rule without ports allows all of them.
        return True
    first, last = wanted
    for start, end in sorted(_iter_port_ranges(chain.from_iterable(entries), facts, protocol)):
        if start <= first <= end:
            first = end + 1
    return bool(entries) and first > last


def _iter_port_ranges(entries: Iterable[Manifest], facts: Facts, protocol: str) -> Iterator[tuple[int, int]]:
    for each in entries:
        if (get_text(each, "protocol") or "TCP") != protocol:
            continue
        if "port" not in each:
            yield 1, _LAST_PORT
        elif name := get_text(each, "port"):
            yield from ((number, number) for number in _find_named_ports(name, facts))
        elif start := get_int(each, "port"):
            yield start, get_int(each, "endPort") or start


def _find_named_ports(name: str, facts: Facts) -> set[int]:
    """Return the numbers of the ports with this name, in the pods of the job and of the cluster's DNS."""
    port = facts.task.dialect.port
    named = {(port.name, port.number), *_DNS_PORT_NAMES}
    for role in facts.task.roles:
        for container in get_mappings(role.spec, "containers"):
            for each in get_mappings(container, "ports"):
                named.add((get_text(each, "name"), get_int(each, "containerPort") or 0))
    return {number for known, number in named if known == name}


def _report_blocked(facts: Facts, direction: str, side: str, way: str) -> Iterator[Violation]:
    port = facts.task.port
    for role, policies in _iter_restricted_roles(facts, direction):
        rules = [
            each for each in _list_rules(policies, direction) if _allow_ports([each], (port, port), facts)
        ]
        lost = [
            peer.name
            for peer in facts.task.roles
            if not any(_is_allowed(each, side, peer, facts) for each in rules)
        ]
        if lost:
            spec = f"policyTypes: [{direction}], {direction.lower()}: [{{{side}: {_PEERS}}}]"
            yield Violation(
                f"{_format_names(policies)} isolates the {role.name}, which {way} a {lost[0]} on port "
                f"{port}, to which the replicas connect first",
                _format_allow_command(facts, direction.lower(), spec),
            )


def _format_names(policies: Sequence[Manifest]) -> str:
    return f"the NetworkPolicy {', '.join(map(deployments.get_name, policies))}"


def _format_allow_command(facts: Facts, purpose: str, spec: str) -> str:
    """Return a command that creates a NetworkPolicy; `purpose` is a part of the policy's name."""
    metadata = f"{{name: kfpytorch-{purpose}, namespace: {facts.namespace}}}"
    return build_apply_command(
        f"{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {metadata}, "
        f"spec: {{{_SELECTOR}, {spec}}}}}"
    )


def _iter_restricted_roles(facts: Facts, direction: str) -> Iterator[tuple[RolePods, Sequence[Manifest]]]:
    """Yield each role whose pods NetworkPolicies restrict, with the policies; none for a job with one pod."""
    restricting = [
        each for each in facts.get_objects(Subject.POLICIES) if direction in _list_policy_types(each)
    ]
    for role in facts.task.roles if role_pods.has_several_pods(facts.task) else ():
        labels = _get_labels(role)
        policies = [
            each for each in restricting if is_match(get_mapping(each, "spec", "podSelector"), labels)
        ]
        if policies:
            yield role, policies


CHECKS: Final = CheckList()


@CHECKS.add(Subject.POLICIES, Subject.ROLES)
def _check_network_ingress(facts: Facts) -> Iterator[Violation]:
    """Check that NetworkPolicies allow connections to the rendezvous port of the replicas (MPI: sshd)."""
    yield from _report_blocked(facts, _INGRESS, "from", "receives nothing from")


@CHECKS.add(Subject.POLICIES, Subject.ROLES)
def _check_network_egress(facts: Facts) -> Iterator[Violation]:
    """Check that NetworkPolicies allow connections from replica to replica."""
    yield from _report_blocked(facts, _EGRESS, "to", "can send nothing to")


@CHECKS.add(Subject.POLICIES, Subject.ROLES, level=Severity.WARNING)
def _check_network_ports(facts: Facts) -> Iterator[Violation]:
    """Check that NetworkPolicies allow connections between replicas on the random ports 32768 to 60999."""
    for role, policies in _iter_restricted_roles(facts, _INGRESS):
        rules = [
            each
            for each in _list_rules(policies, _INGRESS)
            if any(_is_allowed(each, "from", peer, facts) for peer in facts.task.roles)
        ]
        meet = _allow_ports(rules, (facts.task.port, facts.task.port), facts)
        if meet and not _allow_ports(rules, _RANDOM_PORTS, facts):
            spec = f"policyTypes: [Ingress], ingress: [{{from: {_PEERS}}}]"
            yield Violation(
                f"{_format_names(policies)} lets replicas connect "
                f"to port {facts.task.port}, but allows only certain ports of a {role.name}: "
                "NCCL, Gloo and Open MPI use random ports",
                _format_allow_command(facts, "ingress", spec),
            )


@CHECKS.add(Subject.POLICIES, Subject.ROLES)
def _check_network_dns(facts: Facts) -> Iterator[Violation]:
    """Check that NetworkPolicies allow the DNS queries of replicas."""
    for role, policies in _iter_restricted_roles(facts, _EGRESS):
        if not _allow_ports(_list_rules(policies, _EGRESS), (_DNS_PORT, _DNS_PORT), facts, "UDP"):
            ports = "[{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]"
            spec = f"policyTypes: [Egress], egress: [{{ports: {ports}}}]"
            yield Violation(
                f"{_format_names(policies)} allows a {role.name} "
                "no DNS queries, and replicas find each other by name",
                _format_allow_command(facts, "dns", spec),
            )


@CHECKS.add(Subject.DNS_ENDPOINTS, level=Severity.WARNING)
def _check_dns_not_ready(facts: Facts) -> Iterator[Violation]:
    """Check that the DNS of the cluster exists and is ready."""
    if not deployments.has_ready_endpoint(facts.get_objects(Subject.DNS_ENDPOINTS)):
        yield Violation(
            "the cluster's DNS, the Service in kube-system with the label k8s-app=kube-dns, has no ready "
            "endpoint, and replicas find each other by name",
            "kubectl get pods -n kube-system -l k8s-app=kube-dns; kubectl get services -A | grep -i dns",
        )


@CHECKS.add(Subject.ROLES)
def _check_hostname_length(facts: Facts) -> Iterator[Violation]:
    """Check that the host names of pods are not too long for Linux."""
    for role in facts.task.roles:
        name, spec = deployments.get_name(role.pod), get_mapping(role.pod, "spec")
        hostname = f"{name}.{get_text(spec, 'subdomain')}.{facts.namespace}.{_DOMAIN}".replace("..", ".")
        if spec.get("setHostnameAsFQDN") is True and len(hostname) > _LONGEST_HOSTNAME:
            yield Violation(
                f"the fully qualified host name of a {role.name} has {len(hostname)} characters, and the "
                f"limit is {_LONGEST_HOSTNAME}: the pod would never start",
                "leave setHostnameAsFQDN out of the PodTemplate",
            )
