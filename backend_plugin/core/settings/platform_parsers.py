"""Parsers of structured settings: parts of pods, log links, causes of failures and waits, security modes.

They raise `InvalidSettingValue` for an invalid value.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from textwrap import shorten
from typing import Any, Final, Literal, get_args

import msgspec

from backend_plugin.core import schema_check
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.settings.engine import InvalidSettingValue, Parser
from backend_plugin.core.settings.logs import LogTemplate
from backend_plugin.core.settings.model import PodSecurityMode
from backend_plugin.core.settings.value_parsers import duration, merge_maps, text
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

# The length limit of a message, which may contain the value.
_LONGEST: Final = 200
_UNKNOWN: Final = re.compile(r"unknown field `(?P<name>[^`]*)`")
_EXIT_CODES: Final = {str(code): code for code in range(1, 256)}


class _Toleration(msgspec.Struct, forbid_unknown_fields=True):
    key: str = ""
    operator: Literal["", "Exists", "Equal", "Lt", "Gt"] = ""
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    tolerationSeconds: int | None = None  # noqa: N815  (Kubernetes' name)


class _Requirement(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = msgspec.field(default_factory=list)


def build_checked_parser(kind: Any, remedy: str) -> Parser:
    """Return a parser that validates a value with the msgspec type `kind`, and returns it unchanged.

    Fields that the value lacks stay absent, even if `kind` has defaults for them.
    """

    def read(value: Any) -> Any:
        _convert(value, kind, remedy)
        return msgspec.to_builtins(value)

    return read


def _convert(value: Any, kind: Any, remedy: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as refusal:
        raise _build_error(refusal, kind, remedy) from refusal


def _build_error(refusal: msgspec.ValidationError, kind: Any, remedy: str) -> InvalidSettingValue:
    """Convert the error `refusal` of msgspec; for an unknown field, suggest the most similar field name."""
    unknown = _UNKNOWN.search(str(refusal))
    struct = (*get_args(kind), kind)[0]
    if unknown and isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        known = [field.encode_name for field in msgspec.structs.fields(struct)]
        near = get_close_matches(unknown["name"], known, n=1)
        remedy = f"did you mean {near[0]}?" if near else remedy
    return InvalidSettingValue(shorten(str(refusal), _LONGEST), remedy)


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


def dialect(value: Any) -> str:
    """Return `value` if it is ``auto`` or the name of a kind of job in lower case, such as ``pytorchjob``."""
    known = ("auto", *(name.lower() for name in DIALECTS))
    if value not in known:
        raise InvalidSettingValue("is not a kind of job", f"write {', '.join(known)}")
    return str(value)


def times(value: Any) -> int:
    """Return `value` if it is a whole number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidSettingValue("is not a number of times", "write a whole number, 0 or more")
    return value


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
    remedy = "write log templates as Flyte does: name, displayName, templateUris, ..."
    templates = _convert(value, tuple[LogTemplate, ...], remedy)
    return tuple(msgspec.structs.replace(each, scheme=msgspec.UNSET) for each in templates)


def log_templates_by_name(value: Any) -> dict[str, LogTemplate]:
    """Parse a map of log link templates by the names with which tasks select them.

    A template without a name gets its key as the name.
    """
    pairs = {text(key): template for key, template in merge_maps(value).items()}
    templates = zip(pairs, log_templates(list(pairs.values())), strict=True)
    return {key: msgspec.structs.replace(each, name=each.name or key) for key, each in templates}


affinity: Final = build_pod_part_parser("Affinity")
security_context: Final = build_pod_part_parser("SecurityContext")
pod_security_context: Final = build_pod_part_parser("PodSecurityContext")
dns_config: Final = build_pod_part_parser("PodDNSConfig")
tolerations: Final = build_checked_parser(
    list[_Toleration], "write a list of tolerations as in a pod's spec: key, operator, value, effect"
)
toleration: Final = build_checked_parser(
    _Toleration, "write it as in a pod's spec: key, operator, value, effect"
)
requirement: Final = build_checked_parser(
    _Requirement, "write a node selector requirement: key, operator, values"
)
pull_policy: Final = build_checked_parser(
    Literal["", "Always", "Never", "IfNotPresent"], "write Always, Never or IfNotPresent"
)


def pod_security_mode(value: Any) -> PodSecurityMode:
    """Parse ``off``, ``warn`` or ``enforce``."""
    # YAML 1.1 decodes the word off as false.
    mode_name = "off" if value is False else value
    known = {mode.value: mode for mode in PodSecurityMode}
    if not isinstance(mode_name, str) or mode_name not in known:
        raise InvalidSettingValue("is not a mode", f"write {', '.join(known)}")
    return known[mode_name]


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
