"""Checks of the ports of a training container, which the operator copies to the service of the replica."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backend_plugin.core.dialects.pytorchjob.resource import PORT
from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.values import list_repeated


def check_ports(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield a problem for each port that conflicts with another one in the replica's service.

    The operator makes every port of the container a TCP port of the service, so UDP and TCP conflict.
    """
    path = f"{path}.ports"
    ports = container.get("ports", ())
    for name in list_repeated([each["name"] for each in ports if each.get("name")]):
        yield build_problem(path, name, "is the name of two ports", "rename one of them")
    for number in list_repeated([each.get("containerPort", 0) for each in ports]):
        remedy = "leave one of the two out: each is a TCP port of the replica's service"
        yield build_problem(path, number, "is the number of two ports", remedy)
    if _hides_operator_port(ports):
        remedy = f"name it {PORT.name}, or use another number"
        yield build_problem(path, PORT.number, "is the port with which replicas find each other", remedy)


def _hides_operator_port(ports: Sequence[Mapping[str, Any]]) -> bool:
    """True if a port with another name has the number of the port that the operator will add."""
    # The operator adds no port if a port of the container already has the name of the operator's port.
    is_added = all(each.get("name") != PORT.name for each in ports)
    return is_added and any(each.get("containerPort") == PORT.number for each in ports if each.get("name"))
