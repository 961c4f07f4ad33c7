"""Derives facts from the API groups and objects of a cluster, and its capabilities from the facts.

A fact has a name. If it could not be read, its value is an exception.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_texts
from backend_plugin.core.scheduling.adapter import FLAG, SchedulerResource
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.registry import list_schedulers
from backend_plugin.core.scheduling.status_parser import parse_bounded
from backend_plugin.core.values import Manifest
from backend_plugin.shell.cluster import ClusterUnavailable


class UnknownFact(Exception):
    """Raised if a fact about the cluster cannot be determined; the message is the reason."""


def build_capabilities(facts: Mapping[str, Any], kinds: Iterable[str]) -> Capabilities:
    """Return the capabilities that `facts` describes.

    A key of `facts` is a field of `Capabilities`, or the name of a scheduler in `kinds`. The value for a
    scheduler is the names of its queues.

    Raises:
        ClusterUnavailable: If the value of a fact is this error, because its request failed transiently.
    """
    for each in facts.values():
        if isinstance(each, ClusterUnavailable):
            raise each
    unknown = {name: str(each) for name, each in facts.items() if isinstance(each, UnknownFact)}
    known = {name: each for name, each in facts.items() if name not in unknown}
    queues = {name: known.pop(name) for name in kinds if name in known}
    return Capabilities(**known, queues=queues, unknown=unknown)


def select_queue_kinds(served: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[SchedulerResource, str]]:
    """Return the API resource of the queues of each scheduler, with its version, by scheduler name.

    Leave out schedulers whose queues the cluster does not serve. `served` has the versions of each served API
    group, with the preferred one first.
    """
    queues = {name: each.queues for name, each in list_schedulers().items()}
    return {
        name: (kind, served[kind.group][0])
        for name, kind in queues.items()
        if kind is not None and served.get(kind.group)
    }


def list_versions(group: Manifest) -> Sequence[str]:
    """Return the versions of an API group, with the preferred one first."""
    preferred = get_text(group, "preferredVersion", "version")
    versions = [get_text(each, "version") for each in get_mappings(group, "versions")]
    return tuple(dict.fromkeys(filter(None, [preferred, *versions])))


def list_served_dialects(served: Mapping[str, Sequence[str]]) -> Sequence[Dialect]:
    """Return the dialects (kinds of job) that the cluster serves; `served` are its versions by API group."""
    return [
        each
        for each in table.DIALECTS.values()
        if each.resource.version in served.get(each.resource.group, ())
    ]


def read_container_defaults(limit_ranges: Sequence[Manifest]) -> Mapping[str, str]:
    """Return the default request of a container by resource name; the first LimitRange applies."""
    defaults: dict[str, str] = {}
    for ranges in limit_ranges:
        for each in get_mappings(ranges, "spec", "limits"):
            if get_text(each, "type") == "Container":
                # A default limit is also the default request.
                requests = {**get_mapping(each, "default"), **get_mapping(each, "defaultRequest")}
                defaults = {**{name: str(amount) for name, amount in requests.items()}, **defaults}
    # Ignores values that are not quantities or that are too large; no API server stores them.
    return {name: amount for name, amount in defaults.items() if parse_bounded(amount) is not None}


def _list_arguments(deployment: Manifest) -> Sequence[str]:
    containers = get_mappings(deployment, "spec", "template", "spec", "containers")
    return [word for each in containers for part in ("command", "args") for word in get_texts(each, part)]


def find_flag_scheduler(deployment: Manifest) -> str | None:
    """Return the gang scheduler in the flag ``--gang-scheduler-name`` of an operator's Deployment.

    Empty if the Deployment does not set the flag; None if the value is unknown, as with ``$(VARIABLE)``.
    """
    words = _list_arguments(deployment)
    for word, following in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in (FLAG, FLAG.removeprefix("-")):  # Go accepts one dash or two.
            value = value if equals else following
            return None if "$" in value else value
    return None if FLAG in " ".join(words) else ""
