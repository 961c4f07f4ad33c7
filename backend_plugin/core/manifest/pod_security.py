"""The fields of an author's pod that the level "baseline" of the Pod Security Standards does not admit."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias

import msgspec

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
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
_PROC_MOUNTS: Final = frozenset({"Default"})
_EMPTY: Final = frozenset[Any]()
_ACCOUNT_KEYS: Final = ("serviceAccountName", "serviceAccount")

# The message and the values that are admitted in addition to an empty one, by the path of a field below the
# pod's spec or below a container. A path continues in each item of a list.
_Fields: TypeAlias = Mapping[str, tuple[str, frozenset[Any]]]
_SECURITY: Final[_Fields] = {
    "securityContext.windowsOptions.hostProcess": ("runs as a process of the node", _EMPTY),
    "securityContext.seLinuxOptions.type": ("is not an SELinux type for containers", _SELINUX),
    "securityContext.seLinuxOptions.user": ("sets an SELinux user", _EMPTY),
    "securityContext.seLinuxOptions.role": ("sets an SELinux role", _EMPTY),
    "securityContext.seccompProfile.type": ("removes the restrictions of seccomp", _PROFILES),
    "securityContext.appArmorProfile.type": ("removes the restrictions of AppArmor", _PROFILES),
}
_PROBES_AND_HOOKS: Final = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle.postStart",
    "lifecycle.preStop",
)
_POD_FIELDS: Final[_Fields] = {
    "hostNetwork": ("shares the network of the node", _EMPTY),
    "hostPID": ("exposes the processes of the node", _EMPTY),
    "hostIPC": ("shares the memory segments of the node", _EMPTY),
    "volumes.hostPath.path": ("is a directory of the node", _EMPTY),
    "securityContext.sysctls.name": ("changes the kernel of the node", _SYSCTLS),
    **_SECURITY,
}
_CONTAINER_FIELDS: Final[_Fields] = {
    "securityContext.privileged": ("gives all rights on the node", _EMPTY),
    "securityContext.capabilities.add": ("gives a right on the node", _CAPABILITIES),
    "securityContext.procMount": ("exposes parts of /proc that are hidden by default", _PROC_MOUNTS),
    "ports.hostPort": ("is a port of the node", _EMPTY),
    **_SECURITY,
    **{
        f"{place}.{how}.host": ("makes the node connect to another host", _EMPTY)
        for place in _PROBES_AND_HOOKS
        for how in ("httpGet", "tcpSocket")
    },
}


def _index_by_key(fields: _Fields) -> Mapping[str, _Fields]:
    """Return the fields by the first key of their path, so that only keys that a pod contains are checked."""
    keys = {path: path.partition(".")[0] for path in fields}
    return {key: {path: fields[path] for path in fields if keys[path] == key} for key in keys.values()}


_BY_POD_KEY: Final = _index_by_key(_POD_FIELDS)
_BY_CONTAINER_KEY: Final = _index_by_key(_CONTAINER_FIELDS)


class PodPart(msgspec.Struct, frozen=True, kw_only=True):
    """The pod fields that come from one source, such as the task, and their path in the task template."""

    path: str
    spec: Fields = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


# The path in the tables above with the value, the message, and the path in the task template.
_Finding: TypeAlias = tuple[tuple[str, Any], str, str]


def check_baseline(
    sources: Sequence[PodPart], platform: Fields, run: Attempt, settings: Settings
) -> Iterator[Problem]:
    """Yield a problem for each field of the author that Pod Security's level "baseline" forbids.

    Also yield a problem for each service account that the author may not name.

    The values of the platform's PodTemplate and settings are exempt.
    """
    annotations = platform.get("metadata", {}).get("annotations", {})
    platform_part = PodPart(path="", spec=platform.get("spec", {}), annotations=annotations)
    violations_by_source = [(source, [*_iter_violations(source)]) for source in sources]
    decided: set[tuple[str, Any]] = set()
    if any(violations for _, violations in violations_by_source):
        parts = (platform_part, _build_settings_part(settings))
        decided = {what for part in parts for what, _, _ in _iter_violations(part)}
    accounts = _list_service_accounts(platform_part, run, settings)
    for source, violations in violations_by_source:
        for what, message, path in violations:
            if what not in decided:
                yield _problem(path, what[1], message)
        yield from _check_service_account(source, accounts)


def _build_settings_part(settings: Settings) -> PodPart:
    spec = {
        "hostNetwork": settings.enable_host_networking_pod,
        "securityContext": settings.default_pod_security_context or {},
        "containers": [{"securityContext": settings.default_security_context or {}}],
    }
    return PodPart(path="", spec=spec, annotations=settings.default_annotations)


def _iter_violations(source: PodPart) -> Iterator[_Finding]:
    yield from _iter_part_violations(_BY_POD_KEY, source.spec, source.path)
    for kind in _CONTAINERS:
        for index, container in enumerate(source.spec.get(kind, ())):
            yield from _iter_part_violations(_BY_CONTAINER_KEY, container, f"{source.path}.{kind}[{index}]")
    for name, value in source.annotations.items():
        if name.startswith(_APP_ARMOR) and value == "unconfined":
            message, path = "removes the restrictions of AppArmor", f"{source.path}.annotations[{name}]"
            yield (_APP_ARMOR, value), message, path


def _iter_part_violations(fields: Mapping[str, _Fields], part: Fields, path: str) -> Iterator[_Finding]:
    for key in part:
        for field, (message, admitted) in fields.get(key, {}).items():
            for place, value in _iter_values(part, field.split("."), path):
                if value and value not in admitted:
                    yield (field, value), message, place


def _iter_values(part: Any, steps: Sequence[str], path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, list):
        for index, each in enumerate(part):
            yield from _iter_values(each, steps, f"{path}[{index}]")
    elif not steps:
        yield path, part
    elif steps[0] in part:
        yield from _iter_values(part[steps[0]], steps[1:], f"{path}.{steps[0]}")


def _list_service_accounts(platform_part: PodPart, run: Attempt, settings: Settings) -> Set[str]:
    """Return the service accounts that an author may name; ``""`` means that the author names none."""
    return {
        "",
        run.service_account or "default",
        *settings.kfpytorch.pod_security.service_accounts,
        *(platform_part.spec.get(key, "") for key in _ACCOUNT_KEYS),
    }


def _check_service_account(source: PodPart, allowed: Set[str]) -> Iterator[Problem]:
    for key in _ACCOUNT_KEYS:
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
    return build_problem(path, value, message, remedy)
