"""Replaces the host names and ports of a job's replicas by addresses of this machine. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.dialects.base import ReplicaPort
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_hostname
from backend_plugin.embedded.operators.base import OperatorEmulation
from backend_plugin.embedded.operators.table import find_pod_operator

PORT: Final = "kfpytorch.flyte.org/port"
"""The pod annotation with the port of this machine that is reserved for the job of the pod."""
LOOPBACK: Final = "127.0.0.1"

_PORTS: Final = ("MASTER_PORT", "PET_MASTER_PORT")
# Replaces `-` in a name that is no address, so that no pattern matches it. Variables and arguments cannot
# contain this character.
_SHIELD: Final = "\0"
# Ports of torchrun options that are in the same argument as the option. The length limits (a host name has
# at most 253 characters) keep the match fast for very long arguments.
_OPTION_WITH_PORT: Final = re.compile(
    r"(--(?:rdzv[-_]endpoint[= ](?:\[[^\s=\]]{0,45}\]|[^\s:=\[]{0,255}):|master[-_]port[= ]))\d+"
)
_ENDPOINTS: Final = ("--rdzv-endpoint", "--rdzv_endpoint")
_OPTIONS_BEFORE_VALUE: Final = (*_ENDPOINTS, "--master-port", "--master_port")


@dataclass(frozen=True, slots=True)
class PodAddresses:
    """The host names and ports of one job's replicas, and their replacements on this machine."""

    pattern: re.Pattern[str] | None
    port: str
    ports: frozenset[str]
    """The ports in the manifest at which replicas connect to each other. Only these ports are rewritten."""
    own: str
    """The host name of this pod."""

    @classmethod
    def from_pod(cls, pod: Manifest) -> "PodAddresses":
        """Read the host names and ports of a job's replicas from the manifest of one of its pods."""
        metadata = get_mapping(pod, "metadata")
        labels = get_text_map(metadata, "labels")
        operator = find_pod_operator(pod)
        dialect = operator.dialect
        job = labels.get(dialect.labels.job_name, "")
        port = get_text_map(metadata, "annotations").get(PORT, "")
        pattern = _build_pattern(operator, job, get_text(metadata, "namespace")) if job else None
        return cls(pattern=pattern, port=port, ports=_list_ports(pod, dialect.port), own=get_hostname(pod))

    def rewrite(self, value: str) -> str:
        """Replace the addresses of replicas in a text by addresses of this machine.

        A host name becomes the loopback address. If it is followed by a port at which replicas connect to
        each other (see `ports`), the port becomes `port`, which is reserved for the job on this machine.
        """
        return self.pattern.sub(self._replace_address, value) if self.pattern else value

    def rewrite_variable(self, name: str, value: str) -> str:
        """Return the job's reserved port, if any, for a variable with the master port, such as MASTER_PORT.

        Otherwise, return `value`.
        """
        return self.port if name in _PORTS and self.pattern and self.port else value

    def rewrite_torchrun_options(self, words: Sequence[str]) -> Sequence[str]:
        """Replace the ports in the torchrun options of a command by the job's reserved port."""
        if not self.pattern or not self.port:
            return words
        rewritten = [_OPTION_WITH_PORT.sub(rf"\g<1>{self.port}", word) for word in words]
        for at, flag in enumerate(words[:-1]):
            host, colon, port = rewritten[at + 1].rpartition(":")
            if flag in _OPTIONS_BEFORE_VALUE and bool(colon) == (flag in _ENDPOINTS) and port.isdecimal():
                rewritten[at + 1] = host + colon + self.port
        return rewritten

    def build_rendezvous_variables(self, environment: Mapping[str, str], endpoint: str) -> Mapping[str, str]:
        """Return `environment` with rendezvous settings for an elastic job; an empty mapping for other jobs.

        On this machine, all replicas have the same address, so each one would act as rendezvous host. The
        settings select one host. They use the loopback address, because the host name may not resolve.
        `endpoint` is the value of `PET_RDZV_ENDPOINT` with the original host name.
        """
        host = self.pattern.fullmatch(endpoint) if self.pattern else None
        if host is None:
            return {}
        chosen, configured = (
            f"is_host={int(host['replica'] == self.own)}",
            environment.get("PET_RDZV_CONF", ""),
        )
        conf = configured if "is_host=" in configured else f"{configured},{chosen}" if configured else chosen
        return {"PET_LOCAL_ADDR": LOOPBACK, **environment, "PET_RDZV_CONF": conf}

    def _replace_address(self, match: re.Match[str]) -> str:
        port = match["port"]
        if port and self.port and port in self.ports:
            port = self.port
        return f"{LOOPBACK}:{port}" if port else LOOPBACK


def _list_ports(pod: Manifest, of_replicas: ReplicaPort) -> frozenset[str]:
    """Return the ports at which the first replica or the rendezvous listens, as text."""
    ports = {str(of_replicas.number)}
    for container in get_mappings(pod, "spec", "containers"):
        for port in get_mappings(container, "ports"):
            if get_text(port, "name") == of_replicas.name:
                ports.add(str(port.get("containerPort")))
        for variable in get_mappings(container, "env"):
            name, value = get_text(variable, "name"), get_text(variable, "value")
            if name in _PORTS:
                ports.add(value)
            elif name == "PET_RDZV_ENDPOINT":
                ports.add(value.rpartition(":")[2])
    return frozenset(ports)


def _build_pattern(operator: OperatorEmulation, job: str, namespace: str) -> re.Pattern[str]:
    # Do not match a part of a longer word, of a path or of a file name. A match may follow the `//` of a URL.
    # The name comes first in the pattern, because the search for a literal is fast.
    name = re.escape(job)
    before = rf"(?<![\w.\-]{name})(?<!(?<!/)/{name})"
    replica = rf"(?P<replica>{name}{before}(?:{operator.host_suffix or operator.dialect.pod_suffix}))"
    subdomain = rf"(?:\.{name})?" if operator.host_suffix else ""
    domain = rf"{subdomain}(?:\.{re.escape(namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
    return re.compile(rf"{replica}{domain}(?![\w\-]|\.\w)(?::(?P<port>\d{{1,9}}))?")


def shield(value: str) -> str:
    """Protect an identifier, such as a pod name, from `PodAddresses.rewrite`; `unshield` restores it."""
    return value.replace("-", _SHIELD)


def unshield(value: str) -> str:
    """Return a text in which the identifiers that `shield` has protected are restored."""
    return value.replace(_SHIELD, "-")
