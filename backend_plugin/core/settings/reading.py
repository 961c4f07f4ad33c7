"""The loader of `Settings` from a decoded YAML mapping; it reports all problems of a section together.

To add a setting, add a field in `values` and a row here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.scheduling import platform
from backend_plugin.core.settings import kinds
from backend_plugin.core.settings.judging import Judging
from backend_plugin.core.settings.kinds import Read, Wrong
from backend_plugin.core.settings.logs import Logs
from backend_plugin.core.settings.pod_security import PodSecurity
from backend_plugin.core.settings.values import TRAINING_ENV, Ours, Settings, TaskResources

# The length limit of a value in a message, which only has to identify it.
_LONGEST_SHOWN: Final = 80

# A parser for each key, or a nested table for the keys of a section.
_Readers: TypeAlias = "Mapping[str, Read | _Readers | _ByName]"


@dataclass(frozen=True, slots=True)
class _ByName:
    """Sections under names that the admin chooses."""

    readers: _Readers


# Settings of Flyte's section for features that a connector does not have: accepted and ignored.
_OF_OTHERS: Final = frozenset({
    "co-pilot",
    "default-pod-template-resync",
    "delete-resource-on-finalize",
    "enable-distributed-error-aggregation",
    "inject-finalizer",
    "send-object-events",
    "update-backoff-retries",
    "update-base-backoff-duration",
})  # fmt: skip

_FLYTES: Final[_Readers] = {
    "default-annotations": kinds.texts,
    "default-labels": kinds.texts,
    "default-env-vars": kinds.texts,
    "default-env-vars-from-env": kinds.texts,
    "default-env-from-configmaps": kinds.names,
    "default-env-from-secrets": kinds.names,
    "default-cpus": kinds.quantity,
    "default-memory": kinds.quantity,
    "default-tolerations": kinds.tolerations,
    "default-node-selector": kinds.texts,
    "default-affinity": kinds.affinity,
    "scheduler-name": kinds.text,
    "interruptible-tolerations": kinds.tolerations,
    "interruptible-node-selector": kinds.texts,
    "interruptible-node-selector-requirement": kinds.requirement,
    "non-interruptible-node-selector-requirement": kinds.requirement,
    "resource-tolerations": kinds.tolerations_by_resource,
    "image-pull-policy": kinds.pull_policy,
    "gpu-device-node-label": kinds.text,
    "gpu-partition-size-node-label": kinds.text,
    "gpu-unpartitioned-node-selector-requirement": kinds.requirement,
    "gpu-unpartitioned-toleration": kinds.toleration,
    "gpu-resource-name": kinds.text,
    "default-pod-security-context": kinds.pod_security_context,
    "default-security-context": kinds.security_context,
    "enable-host-networking-pod": kinds.boolean,
    "default-pod-dns-config": kinds.dns_config,
    "default-pod-template-name": kinds.text,
    "add-tolerations-for-extended-resources": kinds.names,
}

# Flyte's names, and the fields of `Judging`.
_GRACES: Final[Mapping[str, str]] = {
    "create-container-config-error-grace-period": "create_container_config_error_grace_period",
    "create-container-error-grace-period": "create_container_error_grace_period",
    "image-pull-backoff-grace-period": "image_pull_backoff_grace_period",
    "pod-pending-timeout": "pending_timeout",
}
_JUDGING: Final[_Readers] = {
    "no-status-timeout": kinds.duration,
    "queue-timeout": kinds.duration,
    "queue-timeouts": kinds.durations_by_cause,
    "active-deadline": kinds.duration,
    "unseen-pod-patience": kinds.duration,
    "settling-time": kinds.duration,
    "exit-codes": kinds.causes,
}
_LOGS: Final[_Readers] = {
    "kubernetes-enabled": kinds.boolean,
    "kubernetes-url": kinds.text,
    "kubernetes-template-uri": kinds.text,
    "cloudwatch-enabled": kinds.boolean,
    "cloudwatch-region": kinds.text,
    "cloudwatch-log-group": kinds.text,
    "cloudwatch-template-uri": kinds.text,
    "stackdriver-enabled": kinds.boolean,
    "gcp-project": kinds.text,
    "stackdriver-logresourcename": kinds.text,
    "stackdriver-template-uri": kinds.text,
    "templates": kinds.log_templates,
    "dynamic-log-links": kinds.log_templates_by_name,
}
_OF_GANGS: Final[_Readers] = {
    "scheduler": kinds.text,
    "style": kinds.text,
    "scheduler-name": kinds.text,
    "queue": kinds.text,
    "local-queue": kinds.text,
    "timeout": kinds.duration,
}
_GANG: Final[_Readers] = {
    **_OF_GANGS,
    "by-namespace": _ByName(_OF_GANGS),
    "by-project": _ByName(_OF_GANGS),
    "choices": _ByName({key: reader for key, reader in _OF_GANGS.items() if key != "scheduler"}),
}
_POD_SECURITY: Final[_Readers] = {
    "mode": kinds.pod_security_mode,
    "by-namespace": kinds.pod_security_modes,
    "service-accounts": kinds.names,
}
_OURS: Final[_Readers] = {
    "gang": _GANG,
    "pod-security": _POD_SECURITY,
    "judging": _JUDGING,
    "logs": _LOGS,
    "pod-template-namespace": kinds.text,
    "training-env": kinds.texts,
    "ttl-after-finished": kinds.duration,
    "task-resources": {"defaults": kinds.quantities, "limits": kinds.quantities},
}

_ALL: Final[_Readers] = {
    **_FLYTES,
    **dict.fromkeys(_GRACES, kinds.duration),
    **dict.fromkeys(_OF_OTHERS, kinds.anything),
    "kfpytorch": _OURS,
}


def keys() -> tuple[str, ...]:
    """Return the keys of all settings with an effect, such as ``kfpytorch.gang.queue``."""
    return tuple(_keys(_ALL, ""))


def _keys(readers: _Readers, path: str) -> Iterator[str]:
    for key, reader in readers.items():
        if isinstance(reader, Mapping):
            yield from _keys(reader, f"{path}{key}.")
        elif key not in _OF_OTHERS and not isinstance(reader, _ByName):
            yield f"{path}{key}"


def named_sections() -> tuple[str, ...]:
    """Return the keys of the sections under names that the admin chooses."""
    return tuple(f"kfpytorch.gang.{key}" for key, reader in _GANG.items() if isinstance(reader, _ByName))


def field_of(key: str) -> str:
    """Return the path of the field of `Settings` that has the value of a key."""
    if key in _GRACES:
        return f"judging.{_GRACES[key]}"
    for part in ("judging.", "logs."):
        key = key.replace(f"kfpytorch.{part}", part)
    return key.replace("-", "_")


def read(section: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a ``plugins.k8s`` section.

    Args:
        section: The decoded section.
        environment: The source of values for ``default-env-vars-from-env``.

    Raises:
        InvalidSettings: If a value is invalid; it contains all problems of the section.
    """
    problems: list[Problem] = []
    said = _read(section, _ALL, "", problems)
    ours = said.pop("kfpytorch", {})
    gang = platform.read(_deep_fields(ours.pop("gang", {})))
    if not problems:
        problems.extend(platform.problems(gang))
    if problems:
        raise InvalidSettings(*problems)
    graces = {name: said[key] for key, name in _GRACES.items() if key in said}
    flytes = _fields({key: value for key, value in said.items() if key in _FLYTES})
    flytes["default_env_vars"] = _env(flytes, environment or {})
    return Settings(
        **flytes,
        judging=Judging(**graces, **_fields(ours.pop("judging", {}))),
        logs=Logs(**_fields(ours.pop("logs", {}))),
        kfpytorch=replace(_ours(ours, flytes), gang=gang),
    )


def _fields(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in said.items()}


def _deep_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, and those of the sections by name."""
    return {
        key: {name: _fields(section) for name, section in value.items()}
        if isinstance(value, Mapping)
        else value
        for key, value in _fields(said).items()
    }


def _env(flytes: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    # Flyte also uses an empty value if its environment does not have the variable.
    looked_up = flytes.pop("default_env_vars_from_env", {})
    values = {name: environment.get(source, "") for name, source in looked_up.items()}
    return {**flytes.get("default_env_vars", {}), **values}


def _ours(said: Mapping[str, Any], flytes: Mapping[str, Any]) -> Ours:
    gpu = flytes.get("gpu_resource_name", Settings().gpu_resource_name)
    resources = {
        part: {gpu if name == "gpu" else name: amount for name, amount in amounts.items()}
        for part, amounts in said.get("task-resources", {}).items()
    }
    env = {**TRAINING_ENV, **said.get("training-env", {})}
    security = PodSecurity(**_fields(said.get("pod-security", {})))
    sections = {"pod-security", "task-resources", "training-env"}
    plain = _fields({key: said[key] for key in said.keys() - sections})
    return Ours(task_resources=TaskResources(**resources), training_env=env, pod_security=security, **plain)


def _read(section: Any, readers: _Readers, path: str, problems: list[Problem]) -> dict[str, Any]:
    """Return the parsed values of a section by key, and append its problems to ``problems``."""
    if not isinstance(section, Mapping):
        wrong = Wrong("is not a section", "write keys with values")
        problems.append(_problem(path.rstrip("."), section, wrong))
        return {}
    said: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{path}{key}"
        reader = readers.get(key)
        if reader is None:
            problems.append(_problem(name, value, Wrong("is not a setting", _nearest(str(key), readers))))
        elif value in (None, {}, []):
            continue  # A key without a value counts as not specified, as in Flyte.
        elif isinstance(reader, _ByName):
            said[key] = _read_named(value, reader, f"{name}.", problems)
        elif isinstance(reader, Mapping):
            said[key] = _read(value, reader, f"{name}.", problems)
        else:
            try:
                said[key] = reader(value)
            except Wrong as wrong:
                problems.append(_problem(name, value, wrong))
    return said


def _read_named(section: Any, reader: _ByName, path: str, problems: list[Problem]) -> dict[str, Any]:
    """Return the parsed sections by name, including those that are empty."""
    names = dict.fromkeys(section, reader.readers) if isinstance(section, Mapping) else {}
    return {**{name: {} for name in names}, **_read(section, names, path, problems)}


def _problem(path: str, value: Any, wrong: Wrong) -> Problem:
    return Problem(field=path, value=repr(value)[:_LONGEST_SHOWN], message=wrong.message, remedy=wrong.remedy)


def _nearest(key: str, readers: _Readers) -> str:
    nearest = get_close_matches(key, list(readers), n=1)
    return f"did you mean {nearest[0]}?" if nearest else "remove it"
