"""Validates and completes the headless services that the controller creates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission import metadata, names
from backend_plugin.embedded.admission.refusal import Cause, duplicate, invalid, required, unprocessable

_MOST_PORTS: Final = 65535


def admit_service(manifest: Manifest) -> Manifest:
    """Return a new headless service as it is stored, without the fields that the store adds.

    Raises:
        Refused: If the API server would reject the service.
    """
    found = metadata.sent(manifest)
    given: list[Mapping[str, Any]] = [*entries(section(manifest, "spec"), "ports")]
    wrong = [*metadata.causes(found, names.dns_1035_label), *_of_ports(given)]
    if wrong:
        raise unprocessable("Service", text(section(manifest, "metadata"), "name"), wrong)
    ports = [{"protocol": "TCP", "targetPort": port["port"], **port} for port in given]
    spec = {**section(manifest, "spec"), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": found, "spec": spec}


def _of_ports(ports: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    taken: set[str] = set()
    numbers: set[int] = set()
    for index, port in enumerate(ports):
        path, name, number = f"spec.ports[{index}]", port.get("name", ""), port.get("port", 0)
        if not name and len(ports) > 1:
            yield required(f"{path}.name")
        for wrong in names.dns_label(name) if name else ():
            yield invalid(f"{path}.name", name, wrong)
        if name and name in taken:
            yield duplicate(f"{path}.name", name)
        if not 1 <= number <= _MOST_PORTS:
            yield invalid(f"{path}.port", number, "must be between 1 and 65535, inclusive")
        if number in numbers:
            yield duplicate(path, {"port": number, "protocol": "TCP"})
        taken.add(name)
        numbers.add(number)
