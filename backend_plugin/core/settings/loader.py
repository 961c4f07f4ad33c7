"""The loader of `Settings` from a decoded YAML mapping; it reports all problems of a section together.

To add a setting, add a field in `model` and a row here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.scheduling import gang_settings
from backend_plugin.core.settings import value_parsers
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.core.settings.logs import LogLinkSettings
from backend_plugin.core.settings.model import TRAINING_ENV, PluginSettings, Settings, TaskResources
from backend_plugin.core.settings.pod_security import PodSecuritySettings
from backend_plugin.core.settings.value_parsers import InvalidSettingValue, Read

# The length limit of a value in a message, which only has to identify it.
_LONGEST_SHOWN: Final = 80

# A parser for each key, or a nested table for the keys of a section.
_Readers: TypeAlias = "Mapping[str, Read | _Readers | _NamedSections]"


@dataclass(frozen=True, slots=True)
class _NamedSections:
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
    "default-annotations": value_parsers.text_map,
    "default-labels": value_parsers.text_map,
    "default-env-vars": value_parsers.text_map,
    "default-env-vars-from-env": value_parsers.text_map,
    "default-env-from-configmaps": value_parsers.names,
    "default-env-from-secrets": value_parsers.names,
    "default-cpus": value_parsers.quantity,
    "default-memory": value_parsers.quantity,
    "default-tolerations": value_parsers.tolerations,
    "default-node-selector": value_parsers.text_map,
    "default-affinity": value_parsers.affinity,
    "scheduler-name": value_parsers.text,
    "interruptible-tolerations": value_parsers.tolerations,
    "interruptible-node-selector": value_parsers.text_map,
    "interruptible-node-selector-requirement": value_parsers.requirement,
    "non-interruptible-node-selector-requirement": value_parsers.requirement,
    "resource-tolerations": value_parsers.tolerations_by_resource,
    "image-pull-policy": value_parsers.pull_policy,
    "gpu-device-node-label": value_parsers.text,
    "gpu-partition-size-node-label": value_parsers.text,
    "gpu-unpartitioned-node-selector-requirement": value_parsers.requirement,
    "gpu-unpartitioned-toleration": value_parsers.toleration,
    "gpu-resource-name": value_parsers.text,
    "default-pod-security-context": value_parsers.pod_security_context,
    "default-security-context": value_parsers.security_context,
    "enable-host-networking-pod": value_parsers.boolean,
    "default-pod-dns-config": value_parsers.dns_config,
    "default-pod-template-name": value_parsers.text,
    "add-tolerations-for-extended-resources": value_parsers.names,
}

# Flyte's names, and the fields of `JudgingSettings`.
_GRACES: Final[Mapping[str, str]] = {
    "create-container-config-error-grace-period": "create_container_config_error_grace_period",
    "create-container-error-grace-period": "create_container_error_grace_period",
    "image-pull-backoff-grace-period": "image_pull_backoff_grace_period",
    "pod-pending-timeout": "pending_timeout",
}
_TIMEOUTS: Final[_Readers] = {
    "no-status-timeout": value_parsers.duration,
    "queue-timeout": value_parsers.duration,
    "queue-timeout-by-cause": value_parsers.durations_by_cause,
    "active-deadline": value_parsers.duration,
    "unscheduled-pod-grace-period": value_parsers.duration,
    "success-settling-period": value_parsers.duration,
}
_LOGS: Final[_Readers] = {
    "kubernetes-enabled": value_parsers.boolean,
    "kubernetes-url": value_parsers.text,
    "kubernetes-template-uri": value_parsers.text,
    "cloudwatch-enabled": value_parsers.boolean,
    "cloudwatch-region": value_parsers.text,
    "cloudwatch-log-group": value_parsers.text,
    "cloudwatch-template-uri": value_parsers.text,
    "stackdriver-enabled": value_parsers.boolean,
    "gcp-project": value_parsers.text,
    "stackdriver-logresourcename": value_parsers.text,
    "stackdriver-template-uri": value_parsers.text,
    "templates": value_parsers.log_templates,
    "dynamic-log-links": value_parsers.log_templates_by_name,
}
_OF_GANGS: Final[_Readers] = {
    "scheduler": value_parsers.text,
    "pod-groups-by": value_parsers.text,
    "scheduler-name": value_parsers.text,
    "queue": value_parsers.text,
    "local-queue": value_parsers.text,
    "schedule-timeout": value_parsers.duration,
}
_GANG: Final[_Readers] = {
    **_OF_GANGS,
    "by-namespace": _NamedSections(_OF_GANGS),
    "by-project": _NamedSections(_OF_GANGS),
    "allowed-schedulers": _NamedSections(
        {key: reader for key, reader in _OF_GANGS.items() if key != "scheduler"}
    ),
}
_POD_SECURITY: Final[_Readers] = {
    "mode": value_parsers.pod_security_mode,
    "by-namespace": value_parsers.pod_security_modes,
    "service-accounts": value_parsers.names,
}
_OURS: Final[_Readers] = {
    "gang": _GANG,
    "pod-security": _POD_SECURITY,
    "timeouts": _TIMEOUTS,
    "logs": _LOGS,
    "exit-codes": value_parsers.causes_by_exit_code,
    "pod-template-namespace": value_parsers.text,
    "training-env": value_parsers.text_map,
    "ttl-after-finished": value_parsers.duration,
    "task-resources": {"defaults": value_parsers.quantities, "limits": value_parsers.quantities},
}

_ALL: Final[_Readers] = {
    **_FLYTES,
    **dict.fromkeys(_GRACES, value_parsers.duration),
    **dict.fromkeys(_OF_OTHERS, value_parsers.anything),
    "kfpytorch": _OURS,
}


def list_keys() -> tuple[str, ...]:
    """Return the keys of all settings with an effect, such as ``kfpytorch.gang.queue``."""
    return tuple(_iter_keys(_ALL, ""))


def _iter_keys(readers: _Readers, path: str) -> Iterator[str]:
    for key, reader in readers.items():
        if isinstance(reader, Mapping):
            yield from _iter_keys(reader, f"{path}{key}.")
        elif key not in _OF_OTHERS and not isinstance(reader, _NamedSections):
            yield f"{path}{key}"


def list_named_sections() -> tuple[str, ...]:
    """Return the keys of the sections under names that the admin chooses."""
    return tuple(
        f"kfpytorch.gang.{key}" for key, reader in _GANG.items() if isinstance(reader, _NamedSections)
    )


def get_field(key: str) -> str:
    """Return the path of the field of `Settings` that has the value of a key."""
    if key in _GRACES:
        return f"judging.{_GRACES[key]}"
    for path, field in (("timeouts.", "judging."), ("exit-codes", "judging.exit-codes"), ("logs.", "logs.")):
        if key.startswith(f"kfpytorch.{path}"):
            key = field + key.removeprefix(f"kfpytorch.{path}")
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
    said = _read_section(section, _ALL, "", problems)
    ours = said.pop("kfpytorch", {})
    gang = gang_settings.read(_with_nested_field_names(ours.pop("gang", {})))
    if not problems:
        problems.extend(gang_settings.check_settings(gang))
    if problems:
        raise InvalidSettings(*problems)
    judging = {name: said[key] for key, name in _GRACES.items() if key in said}
    judging |= _with_field_names(ours.pop("timeouts", {}))
    if "exit-codes" in ours:
        judging["exit_codes"] = ours.pop("exit-codes")
    flytes = _with_field_names({key: value for key, value in said.items() if key in _FLYTES})
    flytes["default_env_vars"] = _build_env(flytes, environment or {})
    return Settings(
        **flytes,
        judging=JudgingSettings(**judging),
        logs=LogLinkSettings(**_with_field_names(ours.pop("logs", {}))),
        kfpytorch=replace(_build_plugin_settings(ours, flytes), gang=gang),
    )


def _with_field_names(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in said.items()}


def _with_nested_field_names(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, and those of the sections by name."""
    return {
        key: {name: _with_field_names(section) for name, section in value.items()}
        if isinstance(value, Mapping)
        else value
        for key, value in _with_field_names(said).items()
    }


def _build_env(flytes: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    # Flyte also uses an empty value if its environment does not have the variable.
    looked_up = flytes.pop("default_env_vars_from_env", {})
    values = {name: environment.get(source, "") for name, source in looked_up.items()}
    return {**flytes.get("default_env_vars", {}), **values}


def _build_plugin_settings(said: Mapping[str, Any], flytes: Mapping[str, Any]) -> PluginSettings:
    gpu = flytes.get("gpu_resource_name", Settings().gpu_resource_name)
    resources = {
        part: {gpu if name == "gpu" else name: amount for name, amount in amounts.items()}
        for part, amounts in said.get("task-resources", {}).items()
    }
    env = {**TRAINING_ENV, **said.get("training-env", {})}
    security = PodSecuritySettings(**_with_field_names(said.get("pod-security", {})))
    sections = {"pod-security", "task-resources", "training-env"}
    plain = _with_field_names({key: said[key] for key in said.keys() - sections})
    return PluginSettings(
        task_resources=TaskResources(**resources), training_env=env, pod_security=security, **plain
    )


def _read_section(section: Any, readers: _Readers, path: str, problems: list[Problem]) -> dict[str, Any]:
    """Return the parsed values of a section by key, and append its problems to ``problems``."""
    if not isinstance(section, Mapping):
        wrong = InvalidSettingValue("is not a section", "write keys with values")
        problems.append(_problem(path.rstrip("."), section, wrong))
        return {}
    said: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{path}{key}"
        reader = readers.get(key)
        if reader is None:
            problems.append(
                _problem(
                    name, value, InvalidSettingValue("is not a setting", _suggest_key(str(key), readers))
                )
            )
        elif value in (None, {}, []):
            continue  # A key without a value counts as not specified, as in Flyte.
        elif isinstance(reader, _NamedSections):
            said[key] = _read_named_sections(value, reader, f"{name}.", problems)
        elif isinstance(reader, Mapping):
            said[key] = _read_section(value, reader, f"{name}.", problems)
        else:
            try:
                said[key] = reader(value)
            except InvalidSettingValue as wrong:
                problems.append(_problem(name, value, wrong))
    return said


def _read_named_sections(
    section: Any, reader: _NamedSections, path: str, problems: list[Problem]
) -> dict[str, Any]:
    """Return the parsed sections by name, including those that are empty."""
    names = dict.fromkeys(section, reader.readers) if isinstance(section, Mapping) else {}
    return {**{name: {} for name in names}, **_read_section(section, names, path, problems)}


def _problem(path: str, value: Any, wrong: InvalidSettingValue) -> Problem:
    return Problem(field=path, value=repr(value)[:_LONGEST_SHOWN], message=wrong.message, remedy=wrong.remedy)


def _suggest_key(key: str, readers: _Readers) -> str:
    nearest = get_close_matches(key, list(readers), n=1)
    return f"did you mean {nearest[0]}?" if nearest else "remove it"
