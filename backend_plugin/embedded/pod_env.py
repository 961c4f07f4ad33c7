"""The environment and the arguments of a container, derived from its manifest as the kubelet does. Pure.

Variables of this machine are added in `pod_launch`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core import quantity
from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.kubelet_options import Machine
from backend_plugin.embedded.pod_names import LOOPBACK, Names, shielded, unshielded
from backend_plugin.embedded.pod_volumes import Paths, Unconfigured

LONGEST_VALUE: Final = 131_071
"""The maximum length of a variable or an argument in characters (MAX_ARG_STRLEN on Linux)."""
LONGEST_ENVIRONMENT: Final = 2**21
"""The maximum length of all variables of a container in characters. Nested references grow exponentially."""
_SUBSCRIPT: Final = re.compile(r"metadata\.(?P<of>labels|annotations)\['(?P<key>[^']{0,400})'\]")


@dataclass(frozen=True, slots=True)
class Declared:
    """The environment of a container as its manifest declares it, before names and paths are rewritten."""

    raw: Mapping[str, str]
    names: Names
    paths: Paths

    def environment(self) -> Mapping[str, str]:
        """Return the variables with names and paths rewritten for this machine."""
        found = {name: self._here(value) for name, value in self.raw.items()}
        return {**found, **self.names.rendezvous(found, self.raw.get("PET_RDZV_ENDPOINT", ""))}

    def argument(self, value: str) -> str:
        """Expand the references in an argument, and rewrite its names and paths for this machine."""
        return self._here(expand(value, self.raw, "an argument"))

    def _here(self, value: str) -> str:
        return unshielded(self.paths.rewrite(self.names.rewrite(value)))


def expand(value: str, variables: Mapping[str, str], what: str = "a value") -> str:
    """Replace ``$(NAME)`` if the variable exists, and keep other references unchanged.

    Args:
        value: The text with references.
        variables: The variables by name.
        what: The subject of the error message.

    Raises:
        Unconfigured: If the result is longer than a program can receive.
    """
    found, size = [], 0
    for piece in _pieces(value, variables):
        size += len(piece)
        if size > LONGEST_VALUE:
            raise Unconfigured(
                f"{what} is longer than {LONGEST_VALUE} characters after the expansion of variables"
            )
        found.append(piece)
    return "".join(found)


def _pieces(value: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the parts of an expanded value. As in Kubernetes, `$$` becomes `$`."""
    at = 0
    while (dollar := value.find("$", at)) >= 0:
        yield value[at:dollar]
        following = value[dollar + 1 : dollar + 2]
        close = value.find(")", dollar) if following == "(" else -1
        if following == "$":
            yield "$"
            at = dollar + 2
        elif close >= 0:
            name = value[dollar + 2 : close]
            yield variables.get(name, value[dollar : close + 1])
            at = close + 1
        elif following == "(":  # No `)` follows, so the rest contains no reference.
            yield value[dollar:].replace("$$", "$")
            return
        else:
            yield "$"
            at = dollar + 1
    yield value[at:]


def declared(pod: Manifest, container: Manifest, paths: Paths, machine: Machine) -> Declared:
    """Return the environment that a container declares.

    Raises:
        Unconfigured: If a ConfigMap, a Secret or a field is missing, or if the variables are too long.
    """
    names = Names.of(pod)
    for source in entries(container, "envFrom"):
        for kind in ("configMap", "secret"):
            _require(section(source, f"{kind}Ref"), kind, asked=f"{kind}Ref" in source)
    raw: dict[str, str] = {}
    size = 0
    for variable in entries(container, "env"):
        name = text(variable, "name")
        if "valueFrom" in variable:
            value = _from(section(variable, "valueFrom"), pod, container, machine)
            if value is None:
                continue
        else:
            value = expand(text(variable, "value"), raw, f"variable {name}")
        size += len(value)
        if size > LONGEST_ENVIRONMENT:
            raise Unconfigured(
                f"the environment is longer than {LONGEST_ENVIRONMENT} characters after the expansion of "
                "variables"
            )
        raw[name] = names.variable(name, value)
    return Declared(raw=raw, names=names, paths=paths)


def _require(reference: Manifest, kind: str, *, asked: bool) -> None:
    """Raise Unconfigured for a required ConfigMap or Secret: an embedded cluster does not have them."""
    if asked and reference.get("optional") is not True:
        raise Unconfigured(f'{kind.lower()} "{text(reference, "name")}" not found')


def _from(source: Manifest, pod: Manifest, container: Manifest, machine: Machine) -> str | None:
    for kind in ("configMap", "secret"):
        _require(section(source, f"{kind}KeyRef"), kind, asked=f"{kind}KeyRef" in source)
    if "fieldRef" in source:
        return shielded(_field(pod, text(section(source, "fieldRef"), "fieldPath")))
    if "resourceFieldRef" in source:
        return _resource(section(source, "resourceFieldRef"), pod, container, machine)
    return None


def _field(pod: Manifest, path: str) -> str:
    match = _SUBSCRIPT.fullmatch(path)
    if match:
        return texts(section(pod, "metadata"), match["of"]).get(match["key"], "")
    read = _FIELDS.get(path)
    if read is None:
        raise Unconfigured(f"unsupported fieldPath: {path}")
    return read(pod)


_FIELDS: Final[Mapping[str, Callable[[Manifest], str]]] = {
    "metadata.name": lambda pod: text(section(pod, "metadata"), "name"),
    "metadata.namespace": lambda pod: text(section(pod, "metadata"), "namespace"),
    "metadata.uid": lambda pod: text(section(pod, "metadata"), "uid"),
    "spec.nodeName": lambda pod: text(section(pod, "spec"), "nodeName"),
    "spec.serviceAccountName": lambda pod: text(section(pod, "spec"), "serviceAccountName") or "default",
    **dict.fromkeys(("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"), lambda _: LOOPBACK),
}


def _resource(reference: Manifest, pod: Manifest, container: Manifest, machine: Machine) -> str:
    asked = text(reference, "containerName") or text(container, "name")
    spec = section(pod, "spec")
    of = (*entries(spec, "containers"), *entries(spec, "initContainers"))
    resources = next((section(each, "resources") for each in of if text(each, "name") == asked), None)
    if resources is None:
        raise Unconfigured(f"container {asked} not found")
    which, _, name = text(reference, "resource").partition(".")
    said = section(resources, which).get(name)
    if said is None and which == "requests":
        said = section(resources, "limits").get(name, "0")
    elif said is None:  # A container without a limit may use the whole node.
        said = {"cpu": str(machine.cpus), "memory": str(machine.memory)}.get(name, "0")
    divisor = _amount(text(reference, "divisor") or "1") or _amount("1")
    return str(math.ceil(_amount(str(said)) / divisor))


def _amount(said: str) -> int:
    try:
        return quantity.parse(said).nano
    except quantity.NotAQuantity as wrong:
        raise Unconfigured(f'"{said}" is not a quantity') from wrong


def memory_limit(container: Manifest) -> int | None:
    """Return the memory limit of a container in bytes. Return None if it is missing or 0."""
    said = section(container, "resources", "limits").get("memory")
    return None if said is None else _amount(str(said)) // 10**9 or None


def command(container: Manifest, said: Declared) -> Sequence[str]:
    """Return the command and arguments of a container; empty if only the image would define them."""
    words = []
    for key in ("command", "args"):
        value = container.get(key)
        words += [str(each) for each in value] if isinstance(value, list | tuple) else []
    return said.names.torchrun([said.argument(each) for each in words])
