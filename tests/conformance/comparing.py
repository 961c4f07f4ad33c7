"""Comparison of two PyTorchJobs, which yields each field that differs.

Values that Kubernetes reads as equal are equal here: absent and empty keys, spellings of a quantity, the
order of named list members. Go builds environments and tolerations from maps, so their order has no meaning.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dice import Json

from kfpytorch_common.quantity import InvalidQuantity, parse

MISSING = "(absent)"
# The field that identifies a member of a list. Most lists use the name.
NAMED = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "imagePullSecrets": "name",
    "ports": "containerPort",
}
UNORDERED = {"tolerations"}
EMPTY: Sequence[Any] = (None, {}, [], "")
MEANT = {"emptyDir"}  # Fields in which an empty object has a meaning.
# Mappings in which an empty text is a value.
TEXTS = {"labels", "annotations", "nodeSelector", "matchLabels"}


@dataclass(frozen=True)
class Found:
    case: Json
    path: str
    theirs: Any
    ours: Any
    job: Json  # Our complete job.

    def __str__(self) -> str:
        return f"{self.case['id']}: {self.path}: theirs {self.theirs!r}, ours {self.ours!r}"


def compare(case: Json, theirs: Json, ours: Json) -> list[Found]:
    """Return the differences between the two results of one case. A result is one line of output."""
    refusals = "error" in theirs, "problems" in ours
    if all(refusals):
        return []
    if any(refusals):
        messages = theirs.get("error", {}).get("message", "built"), ours.get("problems", "built")
        return [Found(case, "refused by us" if refusals[1] else "refused by them", *messages, {})]
    (job,) = [manifest for manifest in ours["manifests"] if manifest["kind"] == "PyTorchJob"]
    companions = [manifest for manifest in ours["manifests"] if manifest is not job]
    differing = difference("", plain(theirs["manifest"]), plain(job))
    found = [Found(case, path, *sides, job) for path, *sides in differing]
    return found + [Found(case, "companions", MISSING, companion, job) for companion in companions]


def plain(value: Any, key: str = "") -> Any:
    """Return the value without parts that have no meaning. Lists of named members become mappings."""
    if isinstance(value, Mapping):
        if key in ("requests", "limits"):
            return {name: quantity(text) for name, text in value.items()}
        if key in TEXTS:
            return value
        members = {name: plain(member, name) for name, member in value.items() if name != "status"}
        return {name: member for name, member in members.items() if name in MEANT or member not in EMPTY}
    if isinstance(value, list):
        return plain_list(value, key)
    return quantity(value) if key == "sizeLimit" else value


def plain_list(values: Sequence[Any], key: str) -> Any:
    members = [plain(value) for value in values]
    if key in NAMED:
        return index_by_name(members, NAMED[key])
    if key in UNORDERED:
        return {json.dumps(member, sort_keys=True): 1 for member in members}
    return members


def index_by_name(members: Sequence[Json], key: str) -> Json:
    """Map members by name. The last member with a name applies; `NAME#` contains the number of duplicates."""
    named: Json = {}
    times: dict[str, int] = {}
    for member in members:
        name = f"[{member.get(key, '')}]"
        times[name] = times.get(name, 0) + 1
        named[name] = member
    return {**named, **{f"{name}#": number for name, number in times.items() if number > 1}}


def quantity(text: Any) -> Any:
    """Return the number of a quantity as text. A value that is not a quantity stays unchanged."""
    try:
        return str(parse(str(text)).nano)
    except InvalidQuantity:
        return text


def difference(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each differing path, at the highest level where one side has no value."""
    if path.endswith((".labels", ".annotations")):
        theirs, ours = ({} if side == MISSING else side for side in (theirs, ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            yield from difference(step(path, key), theirs.get(key, MISSING), ours.get(key, MISSING))
    elif theirs != ours:
        yield path, theirs, ours


def step(path: str, key: str) -> str:
    """Return the path of a member: a field after a dot, or a name in brackets."""
    if key.startswith("["):
        return path + key
    if key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key}]"
