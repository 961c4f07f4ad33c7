"""Two PyTorchJobs, and where they differ.

What Kubernetes reads as the same is the same here: keys that are empty, spellings of a quantity, the order of
what has names. Go fills environments and tolerations from maps, so the order of those has no meaning there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from dice import Json

MISSING = "(absent)"
SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Decimal(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
}
# Lists whose members have a name of their own; a few are found by another key.
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
# An empty one of these says something.
MEANT = {"emptyDir"}
# In these, empty texts are values like others.
TEXTS = {"labels", "annotations", "nodeSelector", "matchLabels"}


@dataclass(frozen=True)
class Found:
    """One place where two answers differ."""

    case: Json
    path: str
    theirs: Any
    ours: Any
    job: Json
    """Ours, as a whole."""

    def __str__(self) -> str:
        return f"{self.case['id']}: {self.path}: theirs {self.theirs!r}, ours {self.ours!r}"


def compare(case: Json, theirs: Json, ours: Json) -> list[Found]:
    """Where the answers to one case differ; an answer is a line of output."""
    refusals = "error" in theirs, "problems" in ours
    if all(refusals):
        return []
    if any(refusals):
        said = theirs.get("error", {}).get("message", "built"), ours.get("problems", "built")
        return [Found(case, "refused by us" if refusals[1] else "refused by them", *said, {})]
    (job,) = [manifest for manifest in ours["manifests"] if manifest["kind"] == "PyTorchJob"]
    companions = [manifest for manifest in ours["manifests"] if manifest is not job]
    differing = difference("", plain(theirs["manifest"]), plain(job))
    found = [Found(case, path, *sides, job) for path, *sides in differing]
    return found + [Found(case, "companions", MISSING, companion, job) for companion in companions]


def plain(value: Any, key: str = "") -> Any:
    """The value without what means nothing; lists of named members become mappings."""
    if isinstance(value, Mapping):
        if key in ("requests", "limits"):
            return {name: quantity(text) for name, text in value.items()}
        if key in TEXTS:
            return value
        members = {name: plain(member, name) for name, member in value.items() if name != "status"}
        return {name: member for name, member in members.items() if name in MEANT or not is_empty(member)}
    if isinstance(value, list):
        return plain_list(value, key)
    return quantity(value) if key == "sizeLimit" else value


def is_empty(value: Any) -> bool:
    return value is None or value in ({}, [], "")


def plain_list(values: Sequence[Any], key: str) -> Any:
    members = [plain(value) for value in values]
    if key in NAMED:
        return by_name(members, NAMED[key])
    if key in UNORDERED:
        return {json.dumps(member, sort_keys=True): 1 for member in members}
    return members


def by_name(members: Sequence[Json], key: str) -> Json:
    """Members by name; of several with one name the last, which is in force, and how many there are."""
    named: Json = {}
    times: dict[str, int] = {}
    for member in members:
        name = f"[{member.get(key, '')}]"
        times[name] = times.get(name, 0) + 1
        named[name] = member
    return {**named, **{f"{name}#": number for name, number in times.items() if number > 1}}


def quantity(text: Any) -> Any:
    """The number that a quantity stands for; what is none stays as it is."""
    written = str(text)
    for suffix in (written[-2:], written[-1:]):
        if suffix in SUFFIXES and suffix:
            number, factor = written[: -len(suffix)], SUFFIXES[suffix]
            break
    else:
        number, factor = written, Decimal(1)
    try:
        return str((Decimal(number) * factor).normalize())
    except InvalidOperation:
        return text


def difference(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each place, as high up as one side has nothing there."""
    if path.endswith((".labels", ".annotations")):
        theirs, ours = ({} if side == MISSING else side for side in (theirs, ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            yield from difference(step(path, key), theirs.get(key, MISSING), ours.get(key, MISSING))
    elif theirs != ours:
        yield path, theirs, ours


def step(path: str, key: str) -> str:
    """The path of a member: a field after a dot, a name in brackets."""
    if key.startswith("["):
        return path + key
    if key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key}]"
