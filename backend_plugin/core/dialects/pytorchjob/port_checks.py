"""Checks of the ports of a training container, which the operator copies to the service of the replica."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backend_plugin.core.dialects.pytorchjob.resource import PORT
from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import build_problem


def check_ports(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield a problem for each port that occurs twice in the replica's service.

    The operator makes every port of the container a TCP port of the service, so UDP and TCP conflict.
    """
    path = f"{path}.ports"
    ports = [(each.get("name", ""), each.get("containerPort", 0)) for each in container.get("ports", ())]
    for name in _list_repeated([name for name, _ in ports if name]):
        yield build_problem(path, name, "is the name of two ports", "rename one of them")
    for number in _list_repeated([number for _, number in ports]):
        remedy = "leave one of the two out: each is a TCP port of the replica's service"
        yield build_problem(path, number, "is the number of two ports", remedy)
    # If another port has the operator's name, the operator adds none.
    if PORT.name not in dict(ports) and any(name and number == PORT.number for name, number in ports):
        remedy = f"name it {PORT.name}, or use another number"
        yield build_problem(path, PORT.number, "is the port with which replicas find each other", remedy)


def _list_repeated(values: Sequence[Any]) -> list[Any]:
    return sorted(value for value, times in Counter(values).items() if times > 1)
