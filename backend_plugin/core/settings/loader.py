"""The loader of `Settings` from a decoded YAML mapping.

The type of a setting's field in `model` selects its parser from `_BY_TYPE`. A new key of Flyte's section,
``plugins.k8s``, or of the section of this project, ``plugins.k8s.kfpytorch``, needs a row in `_FLYTES` or
`_OURS` only if the parser of its type does not fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from backend_plugin.core.errors import InvalidSettings
from backend_plugin.core.scheduling import gang_settings
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.settings import engine, platform_parsers, value_parsers
from backend_plugin.core.settings.judging import JudgingSettings, LogLinkSettings, LogTemplate
from backend_plugin.core.settings.model import (
    TRAINING_ENV,
    PluginSettings,
    PodSecurityMode,
    PodSecuritySettings,
    Settings,
    TaskResources,
)
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import Quantity

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

# The parsers of fields by their type.
_BY_TYPE: Final[Mapping[Any, engine.Parser]] = {
    bool: value_parsers.boolean,
    int: platform_parsers.times,
    str: value_parsers.text,
    timedelta: value_parsers.duration,
    Quantity: value_parsers.quantity,
    Sequence[str]: value_parsers.names,
    Mapping[str, str]: value_parsers.text_map,
    Sequence[Manifest]: platform_parsers.tolerations,
    Mapping[str, Sequence[Manifest]]: platform_parsers.tolerations_by_resource,
    Mapping[str, Quantity]: value_parsers.quantities,
    Mapping[str, timedelta]: platform_parsers.durations_by_cause,
    Mapping[int, Cause]: platform_parsers.causes_by_exit_code,
    PodSecurityMode: platform_parsers.pod_security_mode,
    Mapping[str, PodSecurityMode]: platform_parsers.pod_security_modes,
    tuple[LogTemplate, ...]: platform_parsers.log_templates,
    Mapping[str, LogTemplate]: platform_parsers.log_templates_by_name,
}
_FLYTES: Final = engine.derive_parsers(
    Settings,
    _BY_TYPE,
    {
        "default-env-vars-from-env": value_parsers.text_map,
        "default-affinity": platform_parsers.affinity,
        "interruptible-node-selector-requirement": platform_parsers.requirement,
        "non-interruptible-node-selector-requirement": platform_parsers.requirement,
        "image-pull-policy": platform_parsers.pull_policy,
        "gpu-unpartitioned-node-selector-requirement": platform_parsers.requirement,
        "gpu-unpartitioned-toleration": platform_parsers.toleration,
        "default-pod-security-context": platform_parsers.pod_security_context,
        "default-security-context": platform_parsers.security_context,
        "default-pod-dns-config": platform_parsers.dns_config,
    },
)

# Flyte's keys, each with the field of `JudgingSettings` that has its value.
_GRACES: Final[Mapping[str, str]] = {
    "create-container-config-error-grace-period": "create_container_config_error_grace_period",
    "create-container-error-grace-period": "create_container_error_grace_period",
    "image-pull-backoff-grace-period": "image_pull_backoff_grace_period",
    "pod-pending-timeout": "pending_timeout",
}
# The parsers of ``timeouts``. Flyte's own keys set its grace periods, and ``exit-codes`` is a separate key.
_TIMEOUTS: Final = {
    key: parser
    for key, parser in engine.derive_parsers(JudgingSettings, _BY_TYPE).items()
    if key != "exit-codes" and key.replace("-", "_") not in _GRACES.values()
}
_OF_GANGS: Final = engine.derive_parsers(GangSettings, _BY_TYPE)
_GANG: Final[engine.Parsers] = {
    **_OF_GANGS,
    "by-namespace": engine.NamedSections(_OF_GANGS),
    "by-project": engine.NamedSections(_OF_GANGS),
    "allowed-schedulers": engine.NamedSections(
        {key: parser for key, parser in _OF_GANGS.items() if key != "scheduler"}
    ),
}
_OURS: Final = engine.derive_parsers(
    PluginSettings,
    _BY_TYPE,
    {
        "gang": _GANG,
        "pod-security": engine.derive_parsers(PodSecuritySettings, _BY_TYPE),
        "timeouts": _TIMEOUTS,
        "logs": engine.derive_parsers(LogLinkSettings, _BY_TYPE),
        "task-resources": engine.derive_parsers(TaskResources, _BY_TYPE),
        "exit-codes": platform_parsers.causes_by_exit_code,
        "dialect": platform_parsers.dialect,
        "dialect-by-domain": platform_parsers.dialects,
        "dialect-by-namespace": platform_parsers.dialects,
        "dialect-by-project": platform_parsers.dialects,
    },
)
_ALL: Final[engine.Parsers] = {
    **_FLYTES,
    **dict.fromkeys(_GRACES, value_parsers.duration),
    **dict.fromkeys(_OF_OTHERS, lambda value: value),
    "kfpytorch": _OURS,
}


def list_keys() -> tuple[str, ...]:
    """Return the keys of the settings that have an effect, without those that `list_named_sections` lists."""
    return tuple(_iter_keys(_ALL, ""))


def _iter_keys(parsers: engine.Parsers, path: str) -> Iterator[str]:
    for key, parser in parsers.items():
        if isinstance(parser, Mapping):
            yield from _iter_keys(parser, f"{path}{key}.")
        elif key not in _OF_OTHERS and not isinstance(parser, engine.NamedSections):
            yield f"{path}{key}"


def list_named_sections() -> tuple[str, ...]:
    """Return the keys that have one section for each name that an admin chooses.

    An example is ``kfpytorch.gang.by-project``, which has a section for each project.
    """
    sections = [key for key, parser in _GANG.items() if isinstance(parser, engine.NamedSections)]
    return tuple(f"kfpytorch.gang.{key}" for key in sections)


def get_field(key: str) -> str:
    """Return the attribute of `Settings` for a key: ``judging.exit_codes`` for ``kfpytorch.exit-codes``."""
    if key in _GRACES:
        return f"judging.{_GRACES[key]}"
    for path, field in (("timeouts.", "judging."), ("exit-codes", "judging.exit-codes"), ("logs.", "logs.")):
        if key.startswith(f"kfpytorch.{path}"):
            key = field + key.removeprefix(f"kfpytorch.{path}")
    return key.replace("-", "_")


def read(section: Mapping[str, Any], environment: Mapping[str, str] = MappingProxyType({})) -> Settings:
    """Return the settings of a ``plugins.k8s`` section.

    `environment` provides the values for ``default-env-vars-from-env``. Raise `InvalidSettings` if a value is
    invalid; the error contains all problems of the section.
    """
    # A key without a value counts as not specified, as in Flyte.
    reader = engine.SettingsReader(empty=(None, {}, []))
    problems, values = reader.problems, reader.read_section(section, _ALL)
    plugin = values.pop("kfpytorch", {})
    gang = gang_settings.read(_convert_gang(plugin.pop("gang", {})))
    # Values that could not be parsed are missing in `gang`.
    if not any(each.field in reader.raw and each.field.startswith("kfpytorch.gang.") for each in problems):
        problems.extend(gang_settings.check_settings(gang))
    if problems:
        raise InvalidSettings(*problems)
    judging = {
        **{name: values[key] for key, name in _GRACES.items() if key in values},
        **engine.convert_to_fields(plugin.pop("timeouts", {})),
        "exit_codes": plugin.pop("exit-codes", {}),
    }
    fields = engine.convert_to_fields({key: value for key, value in values.items() if key in _FLYTES})
    # Flyte also uses an empty value if its environment does not have the variable.
    for name, source in fields.pop("default_env_vars_from_env", {}).items():
        fields.setdefault("default_env_vars", {})[name] = environment.get(source, "")
    logs = LogLinkSettings(**engine.convert_to_fields(plugin.pop("logs", {})))
    gpu = fields.get("gpu_resource_name", Settings().gpu_resource_name)
    plugin_settings = _build_plugin_settings(engine.convert_to_fields(plugin), gpu, gang)
    return Settings(**fields, judging=JudgingSettings(**judging), logs=logs, kfpytorch=plugin_settings)


def _convert_gang(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``gang`` with the field names of `GangSettings` as keys, also in nested sections."""
    return {
        key: {name: engine.convert_to_fields(part) for name, part in value.items()}
        if isinstance(value, Mapping)
        else value
        for key, value in engine.convert_to_fields(section).items()
    }


def _build_plugin_settings(values: dict[str, Any], gpu: str, gang: GangSettings) -> PluginSettings:
    resources = {
        part: {gpu if name == "gpu" else name: amount for name, amount in amounts.items()}
        for part, amounts in values.pop("task_resources", {}).items()
    }
    return PluginSettings(
        task_resources=TaskResources(**resources),
        training_env={**TRAINING_ENV, **values.pop("training_env", {})},
        pod_security=PodSecuritySettings(**engine.convert_to_fields(values.pop("pod_security", {}))),
        gang=gang,
        **values,
    )
