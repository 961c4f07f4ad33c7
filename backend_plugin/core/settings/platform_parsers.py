"""Parsers of structured settings; they raise `InvalidSettingValue` for an invalid value."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from textwrap import shorten
from typing import Any, Final

import msgspec

from backend_plugin.core import pod_rules, schema_check
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.pod_rules.containers import PULL_POLICIES
from backend_plugin.core.settings.engine import InvalidSettingValue, Parser
from backend_plugin.core.settings.judging import LogTemplate
from backend_plugin.core.settings.model import PodSecurityMode
from backend_plugin.core.settings.value_parsers import (
    build_choice_parser,
    build_count_parser,
    duration,
    merge_maps,
    text,
)
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

# The length limit of a message, which may contain the value.
_LONGEST: Final = 200
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EXIT_CODES: Final = {str(code): code for code in range(1, 256)}


def build_pod_part_parser(kind: str) -> Parser:
    """Return a parser for a value of the type `kind` in `pod_schema`, such as a list of tolerations."""

    def read(value: Any) -> Any:
        plain = schema_check.normalize_json(value)
        written, problems = schema_check.convert_value(plain, kind, "")
        for problem in problems:
            at = f"{problem.field.lstrip('.')} {problem.value} " if problem.field else ""
            raise InvalidSettingValue(at + problem.message, problem.remedy)
        for name in schema_check.iter_unknown_fields(plain, kind):
            raise InvalidSettingValue(f"has the unknown field {name}", "write it as in a pod's spec")
        return written

    return read


def toleration(value: Any) -> Manifest:
    """Parse a toleration of a pod's spec."""
    written: Manifest = _read_toleration(value)
    # Kubernetes 1.35 adds these operators; like Equal, they compare a value.
    checked = {**written, "operator": "Equal"} if written.get("operator") in ("Gt", "Lt") else written
    for error in pod_rules.check_toleration(checked, "toleration"):
        raise InvalidSettingValue(shorten(str(error), _LONGEST), "write it as in a pod's spec")
    return written


def tolerations(value: Any) -> list[Manifest]:
    """Parse a list of tolerations."""
    if not isinstance(value, list):
        raise InvalidSettingValue("is not a list", "write a list of tolerations as in a pod's spec")
    return [toleration(each) for each in value]


def requirement(value: Any) -> Manifest:
    """Parse a requirement for the labels of nodes, as in a pod's node affinity."""
    written: Manifest = _read_requirement(value)
    if not written.get("key") or written.get("operator") not in _OPERATORS:
        remedy = f"write key, operator ({', '.join(_OPERATORS)}) and values"
        raise InvalidSettingValue("has no key, or no valid operator", remedy)
    return written


def tolerations_by_resource(value: Any) -> dict[str, Sequence[Manifest]]:
    """Parse a map from resource names to lists of tolerations."""
    return {text(name): tolerations(items) for name, items in merge_maps(value).items()}


WAITS: Final = (
    "unsatisfiable",
    *(each.value for each in (Cause.QUEUE, Cause.QUOTA_EXCEEDED, Cause.UNSCHEDULABLE, Cause.INVALID_CONFIG)),
)
"""The keys of ``queue-timeout-by-cause``: causes for which a job is pending, and ``unsatisfiable`` for
requests that can never be met. The cause `invalid-config` means that the queue does not exist."""


def durations_by_cause(value: Any) -> dict[str, timedelta]:
    """Parse a map from the causes for which a job is pending to durations such as ``30m``."""
    pairs = merge_maps(value)
    if unknown := [each for each in pairs if each not in WAITS]:
        raise InvalidSettingValue(
            f"has {unknown[0]!r} as the reason of a wait", f"write one of {', '.join(WAITS)}"
        )
    return {cause: duration(limit) for cause, limit in pairs.items()}


def causes_by_exit_code(value: Any) -> dict[int, Cause]:
    """Parse a map from exit codes to names of causes."""
    return {_parse_exit_code(code): _parse_cause(cause) for code, cause in merge_maps(value).items()}


def _parse_exit_code(value: Any) -> int:
    code = text(value)
    if code not in _EXIT_CODES:
        raise InvalidSettingValue(
            f"has {shorten(code, _LONGEST)!r} as an exit code", "write numbers from 1 to 255"
        )
    return _EXIT_CODES[code]


def _parse_cause(value: Any) -> Cause:
    try:
        return Cause(value)
    except ValueError as refusal:
        known = ", ".join(cause.value for cause in Cause)
        raise InvalidSettingValue(f"has {value!r} as a cause", f"write one of {known}") from refusal


def log_templates(value: Any) -> tuple[LogTemplate, ...]:
    """Parse a list of log link templates."""
    try:
        templates = msgspec.convert(value, tuple[LogTemplate, ...])
    except msgspec.ValidationError as refusal:
        remedy = "write log templates as Flyte does: name, displayName, templateUris, ..."
        raise InvalidSettingValue(shorten(str(refusal), _LONGEST), remedy) from refusal
    return tuple(msgspec.structs.replace(each, scheme=msgspec.UNSET) for each in templates)


def log_templates_by_name(value: Any) -> dict[str, LogTemplate]:
    """Parse a map of log link templates; its keys are the names with which tasks select them.

    A template without a name gets its key as the name.
    """
    pairs = {text(key): template for key, template in merge_maps(value).items()}
    templates = zip(pairs, log_templates(list(pairs.values())), strict=True)
    return {key: msgspec.structs.replace(each, name=each.name or key) for key, each in templates}


affinity: Final = build_pod_part_parser("Affinity")
security_context: Final = build_pod_part_parser("SecurityContext")
pod_security_context: Final = build_pod_part_parser("PodSecurityContext")
dns_config: Final = build_pod_part_parser("PodDNSConfig")
_read_requirement: Final = build_pod_part_parser("NodeSelectorRequirement")
_read_toleration: Final = build_pod_part_parser("Toleration")
times: Final = build_count_parser(0)
dialect: Final = build_choice_parser("auto", *(name.lower() for name in DIALECTS))
_read_mode: Final = build_choice_parser(*(mode.value for mode in PodSecurityMode))


def pull_policy(value: Any) -> str:
    """Parse the image pull policy of a container, or an empty text."""
    if value not in ("", *PULL_POLICIES):
        raise InvalidSettingValue("is not a valid value", f"write {' or '.join(PULL_POLICIES)}")
    return str(value)


def pod_security_mode(value: Any) -> PodSecurityMode:
    """Parse ``off``, ``warn`` or ``enforce``."""
    # YAML 1.1 decodes the word off as false.
    return PodSecurityMode(_read_mode("off" if value is False else value))


def build_map_parser(parser: Parser, kinds: str) -> Parser:
    """Return a parser for a map from names to values that `parser` accepts.

    If the value is not a map, the remedy in the error is "write names", followed by `kinds`.
    """

    def read(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidSettingValue("is not a map", f"write names {kinds}")
        return {str(name): parser(each) for name, each in value.items()}

    return read


dialects: Final = build_map_parser(dialect, "with kinds of jobs")
pod_security_modes: Final = build_map_parser(pod_security_mode, "of namespaces with modes")
