"""The fields of an author's pod that the level "baseline" of the Pod Security Standards does not admit.

The setting is in `settings.pod_security`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Run
from backend_plugin.core.protojson import shown
from backend_plugin.core.settings import Settings

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
_SYSCTLS: Final = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
})  # fmt: skip
_SELINUX: Final = frozenset({"container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_PROFILES: Final = frozenset({"RuntimeDefault", "Localhost"})
_NOTHING: Final = frozenset[Any]()


@dataclass(frozen=True, slots=True)
class _Row:
    """A field that the level restricts."""

    path: str
    """The path below the pod's spec or below a container; ``[]`` stands for each item of a list."""
    message: str
    admitted: frozenset[Any] = _NOTHING
    """The values that are admitted in addition to an empty one."""


_SECURITY: Final = (
    _Row("securityContext.windowsOptions.hostProcess", "runs as a process of the node"),
    _Row("securityContext.seLinuxOptions.type", "is not an SELinux type for containers", _SELINUX),
    _Row("securityContext.seLinuxOptions.user", "sets an SELinux user"),
    _Row("securityContext.seLinuxOptions.role", "sets an SELinux role"),
    _Row("securityContext.seccompProfile.type", "removes the restrictions of seccomp", _PROFILES),
    _Row("securityContext.appArmorProfile.type", "removes the restrictions of AppArmor", _PROFILES),
)
_HOSTS: Final = tuple(
    _Row(f"{place}.{how}.host", "makes the node connect to another host")
    for place in (
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle.postStart",
        "lifecycle.preStop",
    )
    for how in ("httpGet", "tcpSocket")
)
OF_PODS: Final = (
    _Row("hostNetwork", "shares the network of the node"),
    _Row("hostPID", "exposes the processes of the node"),
    _Row("hostIPC", "shares the memory segments of the node"),
    _Row("volumes[].hostPath.path", "is a directory of the node"),
    _Row("securityContext.sysctls[].name", "changes the kernel of the node", _SYSCTLS),
    *_SECURITY,
)
OF_CONTAINERS: Final = (
    _Row("securityContext.privileged", "gives all rights on the node"),
    _Row("securityContext.capabilities.add[]", "gives a right on the node", _CAPABILITIES),
    _Row(
        "securityContext.procMount",
        "exposes parts of /proc that are hidden by default",
        frozenset({"Default"}),
    ),
    _Row("ports[].hostPort", "is a port of the node"),
    *_SECURITY,
    *_HOSTS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A part of a pod, and its path in the task template."""

    path: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


# The row path and value, the message, and the path.
_Finding: TypeAlias = tuple[tuple[str, Any], str, str]


def problems(
    sources: Sequence[Source], platform: Mapping[str, Any], run: Run, settings: Settings
) -> Iterator[Problem]:
    """Yield each field of the author's parts that is not admitted.

    The values that the platform itself configures are exempt: those of its PodTemplate (`platform`) and those
    of the settings.
    """
    ours = Source(
        path="",
        spec=platform.get("spec", {}),
        annotations=platform.get("metadata", {}).get("annotations", {}),
    )
    decided = {what for source in (ours, _of_settings(settings)) for what, _, _ in _findings(source)}
    for source in sources:
        for what, message, path in _findings(source):
            if what not in decided:
                yield _problem(path, what[1], message)
        yield from _account_problems(source, ours, run, settings)


def _of_settings(settings: Settings) -> Source:
    spec = {
        "hostNetwork": settings.enable_host_networking_pod,
        "securityContext": settings.default_pod_security_context or {},
        "containers": [{"securityContext": settings.default_security_context or {}}],
    }
    return Source(path="", spec=spec, annotations=settings.default_annotations)


def _findings(source: Source) -> Iterator[_Finding]:
    for row in OF_PODS:
        yield from _of_row(row, source.spec, source.path)
    for kind in CONTAINERS:
        for index, container in enumerate(source.spec.get(kind, ())):
            for row in OF_CONTAINERS:
                yield from _of_row(row, container, f"{source.path}.{kind}[{index}]")
    for name, value in source.annotations.items():
        if name.startswith(_APP_ARMOR) and value == "unconfined":
            yield (
                (_APP_ARMOR, value),
                "removes the restrictions of AppArmor",
                f"{source.path}.annotations[{name}]",
            )


def _of_row(row: _Row, part: Mapping[str, Any], path: str) -> Iterator[_Finding]:
    for place, value in _values(part, row.path.split("."), path):
        if value and value not in row.admitted:
            yield (row.path, value), row.message, place


def _values(part: Any, steps: Sequence[str], path: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield path, part
        return
    name = steps[0].removesuffix("[]")
    inner = part.get(name)
    if inner is None:
        return
    if name == steps[0]:
        yield from _values(inner, steps[1:], f"{path}.{name}")
        return
    for index, each in enumerate(inner):
        yield from _values(each, steps[1:], f"{path}.{name}[{index}]")


def _account_problems(source: Source, ours: Source, run: Run, settings: Settings) -> Iterator[Problem]:
    """Yield the service account that an author names, if it is not the one of the execution."""
    allowed = {"", run.service_account or "default", *settings.kfpytorch.pod_security.service_accounts}
    keys = ("serviceAccountName", "serviceAccount")
    allowed.update(ours.spec.get(key, "") for key in keys)
    for key in keys:
        if (name := source.spec.get(key, "")) not in allowed:
            yield _problem(
                f"{source.path}.{key}",
                name,
                "is not the service account of the execution",
                "start the execution with that account, or have an admin add it to "
                "kfpytorch.pod-security.service-accounts",
            )


def _problem(path: str, value: object, message: str, remedy: str = "") -> Problem:
    remedy = remedy or "leave it out, or have an admin allow it with kfpytorch.pod-security"
    return Problem(field=path, value=shown(value), message=message, remedy=remedy)
