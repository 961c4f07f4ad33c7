"""A job's addresses → this machine's: its pods are not hosts, and other jobs have the same ports.

PURE. Lives here: which words of a pod mean a replica of its job, and what they become. Does not: where such
words are looked for; see `pod_env`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.controller.job import PORT as PORT_OF_REPLICAS
from backend_plugin.embedded.controller.job import PORT_NAME
from backend_plugin.embedded.controller.objects import JOB_NAME

PORT: Final = "kfpytorch.flyte.org/port"
"""The annotation that says which port of this machine the job has for itself."""
LOOPBACK: Final = "127.0.0.1"

_PORTS: Final = ("MASTER_PORT", "PET_MASTER_PORT")
# What must not be taken for an address though it looks like one. It occurs in no variable and no argument.
_SHIELD: Final = "\0"
# Where torchrun is told of a port that stands in no manifest, within one word or in the next one. A host has
# 253 characters at most; without a limit a word of a hundred thousand takes seconds.
_TOLD: Final = re.compile(
    r"(--(?:rdzv[-_]endpoint[= ](?:\[[^\s=\]]{0,45}\]|[^\s:=\[]{0,255}):|master[-_]port[= ]))\d+"
)
_ENDPOINTS: Final = ("--rdzv-endpoint", "--rdzv_endpoint")
_TOLD_NEXT: Final = (*_ENDPOINTS, "--master-port", "--master_port")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one job's pods."""

    pattern: re.Pattern[str] | None
    port: str
    said: frozenset[str]
    """The ports at which its replicas find each other, as its manifest has them; others are a program's."""
    own: str
    """The name of this pod."""

    @classmethod
    def of(cls, pod: Manifest) -> "Names":
        """Those of the job that a pod belongs to; none if it belongs to none."""
        metadata = section(pod, "metadata")
        job = texts(metadata, "labels").get(JOB_NAME, "")
        port = texts(metadata, "annotations").get(PORT, "")
        pattern = _pattern(job, text(metadata, "namespace")) if job else None
        return cls(pattern=pattern, port=port, said=_ports(pod), own=text(metadata, "name"))

    def rewrite(self, value: str) -> str:
        """Replicas' names become addresses of this machine, and the job's port behind one its own here."""
        return self.pattern.sub(self._address, value) if self.pattern else value

    def variable(self, name: str, value: str) -> str:
        """The value of a variable before anybody refers to it."""
        return self.port if name in _PORTS and self.pattern and self.port else value

    def torchrun(self, words: Sequence[str]) -> Sequence[str]:
        """A command in which torchrun is told of ports of its own choice: they are this job's, too."""
        if not self.pattern or not self.port:
            return words
        found = [_TOLD.sub(rf"\g<1>{self.port}", word) for word in words]
        for at, flag in enumerate(words[:-1]):
            host, colon, port = found[at + 1].rpartition(":")
            if flag in _TOLD_NEXT and bool(colon) == (flag in _ENDPOINTS) and port.isdecimal():
                found[at + 1] = host + colon + self.port
        return found

    def rendezvous(self, environment: Mapping[str, str], endpoint: str) -> Mapping[str, str]:
        """What to add for an elastic job whose rendezvous is at `endpoint`, as it was before `rewrite`.

        With all replicas at the same address each would take itself for the host of the rendezvous. And
        they find each other at this machine's loopback, whether or not its name can be resolved.
        """
        host = self.pattern.fullmatch(endpoint) if self.pattern else None
        if host is None:
            return {}
        chosen, said = f"is_host={int(host['replica'] == self.own)}", environment.get("PET_RDZV_CONF", "")
        conf = said if "is_host=" in said else f"{said},{chosen}" if said else chosen
        return {"PET_LOCAL_ADDR": LOOPBACK, **environment, "PET_RDZV_CONF": conf}

    def _address(self, match: re.Match[str]) -> str:
        port = match["port"]
        if port and self.port and port in self.said:
            port = self.port
        return f"{LOOPBACK}:{port}" if port else LOOPBACK


def _ports(pod: Manifest) -> frozenset[str]:
    """The port of a replica, that of its master and that of its rendezvous."""
    found = {str(PORT_OF_REPLICAS)}
    for container in entries(section(pod, "spec"), "containers"):
        for port in entries(container, "ports"):
            if text(port, "name") == PORT_NAME:
                found.add(str(port.get("containerPort")))
        for variable in entries(container, "env"):
            name, value = text(variable, "name"), text(variable, "value")
            if name in _PORTS:
                found.add(value)
            elif name == "PET_RDZV_ENDPOINT":
                found.add(value.rpartition(":")[2])
    return frozenset(found)


def _pattern(job: str, namespace: str) -> re.Pattern[str]:
    # A part of a longer word, of a path or of a file's name is none; what follows the // of a URL is.
    # The name comes first in the pattern, because a literal is found quickly.
    name = re.escape(job)
    before = rf"(?<![\w.\-]{name})(?<!(?<!/)/{name})"
    replica = rf"(?P<replica>{name}{before}-(?:master-0|worker-\d{{1,9}}))"
    domain = rf"(?:\.{re.escape(namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
    return re.compile(rf"{replica}{domain}(?![\w\-]|\.\w)(?::(?P<port>\d{{1,9}}))?")


def shielded(value: str) -> str:
    """A value that stays as it is though it may be a replica's name: who a pod is, not where."""
    return value.replace("-", _SHIELD)


def unshielded(value: str) -> str:
    """The value that was shielded."""
    return value.replace(_SHIELD, "-")
