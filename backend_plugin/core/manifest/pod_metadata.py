"""Labels and annotations of the pods, with the secrets that Flyte's webhook puts into them.

Lives here: who wins, and how a secret is written. The job's own metadata is the job's.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flyteidl.core.security_pb2 import Secret, SecurityContext

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Run
from backend_plugin.core.settings import Settings

_RFC_4648: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_FLYTES: Final = str.maketrans(_RFC_4648, "abcdefghijklmnopqrstuvwxyz123456", "=")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_LONGEST_LABEL: Final = 63
_NOT_IN_A_LABEL: Final = re.compile("[^-a-z0-9]+")


def of_run(run: Run, security: SecurityContext) -> Mapping[str, Mapping[str, str]]:
    """What an execution puts on every object of its own: its labels, its identity, its secrets."""
    secrets = {f"flyte.secrets/s{index}": encoded(each) for index, each in enumerate(security.secrets)}
    labels = {**run.labels, **({"inject-flyte-secrets": "true"} if secrets else {})}
    if run.execution_identity:
        labels["execution-identity"] = _label(run.execution_identity)
    return {"labels": labels, "annotations": {**run.annotations, **secrets}}


def of_pod(layers: Sequence[Mapping[str, Any]], settings: Settings) -> dict[str, Any]:
    """The metadata of a pod; whoever comes later wins."""
    platform = {"labels": settings.default_labels, "annotations": settings.default_annotations}
    parts = {
        part: {name: value for layer in (platform, *layers) for name, value in layer.get(part, {}).items()}
        for part in platform
    }
    return {part: values for part, values in parts.items() if values}


def problems(security: SecurityContext) -> Iterator[Problem]:
    """Secrets that the webhook would not know how to mount."""
    for index, each in enumerate(security.secrets):
        if each.mount_requirement not in Secret.MountType.values():
            yield Problem(
                field=f"securityContext.secrets[{index}].mountRequirement",
                value=str(each.mount_requirement),
                message="is not a way to mount a secret",
                remedy="write ANY, ENV_VAR or FILE",
            )


def encoded(secret: Secret) -> str:
    """A secret's description as an annotation may hold it, which is as the webhook reads it."""
    return base64.b32encode("".join(_lines(secret)).encode()).decode().translate(_FLYTES)


def _lines(secret: Secret) -> Iterator[str]:
    for field, value in secret.ListFields():
        if field.enum_type is None:
            yield f"{field.name}: {_quoted(value)}\n"
        else:
            # A number without a name is among the problems.
            known = field.enum_type.values_by_number.get(value)
            yield f"{field.name}: {known.name if known else value}\n"


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())


def _label(identity: str) -> str:
    return _NOT_IN_A_LABEL.sub("-", identity.lower())[:_LONGEST_LABEL].strip("-")
