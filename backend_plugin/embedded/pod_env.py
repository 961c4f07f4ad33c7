"""The environment and the arguments of a container, derived from its manifest as the kubelet does. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map, get_texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.options import HostInfo
from backend_plugin.embedded.pod_addresses import LOOPBACK, PodAddresses, shield, unshield
from backend_plugin.embedded.pod_volumes import ContainerConfigError, MountPaths, find_missing_source
from kfpytorch_common import quantity

LONGEST_VALUE: Final = 131_071
"""The maximum length of a variable or an argument in characters (MAX_ARG_STRLEN on Linux)."""
LONGEST_ENVIRONMENT: Final = 2**21
"""The maximum total length of all variables in characters: nested references can grow exponentially."""
_REFERENCE: Final = re.compile(r"\$(?:\$|\((?P<name>[^)]*)(?P<end>\))?)")
"""Matches a reference ``$(NAME)``, or ``$$``, which stands for ``$``. A reference without its ``)`` matches
up to the end of the text, so that the search time is linear in the length of the text."""
_SUBSCRIPT: Final = re.compile(r"metadata\.(?P<of>labels|annotations)\['(?P<key>[^']{0,400})'\]")


@dataclass(frozen=True, slots=True)
class DeclaredEnvironment:
    """The variables that a manifest declares for a container, with the data to rewrite them for this machine.

    `raw` contains the values in which references such as ``$(NAME)`` are already expanded.
    """

    raw: Mapping[str, str]
    names: PodAddresses
    paths: MountPaths

    def build_variables(self) -> Mapping[str, str]:
        """Return the variables, with addresses of replicas and mount paths rewritten for this machine."""
        variables = {name: self._localize(value) for name, value in self.raw.items()}
        return {
            **variables,
            **self.names.build_rendezvous_variables(variables, self.raw.get("PET_RDZV_ENDPOINT", "")),
        }

    def expand_argument(self, value: str) -> str:
        """Expand ``$(NAME)`` references in an argument; rewrite addresses of replicas and mount paths."""
        return self._localize(expand_references(value, self.raw, "an argument"))

    def _localize(self, value: str) -> str:
        return unshield(self.paths.rewrite(self.names.rewrite(value)))


def expand_references(value: str, variables: Mapping[str, str], what: str = "a value") -> str:
    """Replace ``$(NAME)`` if the variable exists, and keep other references unchanged.

    Raises:
        ContainerConfigError: If the result is longer than a program can receive. The message begins
            with `what`, a name of the value.
    """
    references = _REFERENCE.finditer(value)
    growth = sum(len(_expand_reference(each, variables)) - len(each[0]) for each in references)
    if len(value) + growth > LONGEST_VALUE:
        raise ContainerConfigError(
            f"{what} is longer than {LONGEST_VALUE} characters after the expansion of variables"
        )
    return _REFERENCE.sub(lambda each: _expand_reference(each, variables), value)


def _expand_reference(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if not match["end"]:
        return match[0].replace("$$", "$")
    return variables.get(match["name"], match[0])


def read_environment(
    pod: Manifest, container: Manifest, paths: MountPaths, machine: HostInfo
) -> DeclaredEnvironment:
    """Return the environment that a container declares.

    Raises:
        ContainerConfigError: If a required ConfigMap, Secret or field is not available, or if the variables
            are too long.
    """
    names = PodAddresses.from_pod(pod)
    for source in get_mappings(container, "envFrom"):
        _require_available(source, "Ref")
    raw: dict[str, str] = {}
    size = 0
    for variable in get_mappings(container, "env"):
        name = get_text(variable, "name")
        if "valueFrom" in variable:
            value = _read_source(get_mapping(variable, "valueFrom"), pod, container, machine)
            if value is None:
                continue
        else:
            value = expand_references(get_text(variable, "value"), raw, f"variable {name}")
        size += len(value)
        if size > LONGEST_ENVIRONMENT:
            raise ContainerConfigError(
                f"the environment is longer than {LONGEST_ENVIRONMENT} characters after the expansion of "
                "variables"
            )
        raw[name] = names.rewrite_variable(name, value)
    return DeclaredEnvironment(raw=raw, names=names, paths=paths)


def _require_available(source: Manifest, suffix: str) -> None:
    if missing := find_missing_source(source, suffix):
        raise ContainerConfigError(missing)


def _read_source(source: Manifest, pod: Manifest, container: Manifest, machine: HostInfo) -> str | None:
    _require_available(source, "KeyRef")
    if "fieldRef" in source:
        return shield(_read_field(pod, get_text(source, "fieldRef", "fieldPath")))
    if "resourceFieldRef" in source:
        return _compute_resource(get_mapping(source, "resourceFieldRef"), pod, container, machine)
    return None


def _read_field(pod: Manifest, path: str) -> str:
    match = _SUBSCRIPT.fullmatch(path)
    if match:
        return get_text_map(pod, "metadata", match["of"]).get(match["key"], "")
    if path not in _FIELDS:
        raise ContainerConfigError(f"unsupported fieldPath: {path}")
    return get_text(pod, *path.split(".")) or _FIELDS[path]


_FIELDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName"), ""),
    "spec.serviceAccountName": "default",
    **dict.fromkeys(("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"), LOOPBACK),
}
"""The supported values of ``fieldPath``, each with the text to use if the pod does not set that field."""


def _compute_resource(reference: Manifest, pod: Manifest, container: Manifest, machine: HostInfo) -> str:
    container_name = get_text(reference, "containerName") or get_text(container, "name")
    resources = get_mapping(_find_container(pod, container_name), "resources")
    which, _, name = get_text(reference, "resource").partition(".")
    # A container without a limit may use the whole node.
    of_node = {"cpu": str(machine.cpus), "memory": str(machine.memory)}
    other = get_mapping(resources, "limits") if which == "requests" else of_node
    amount = {**other, **get_mapping(resources, which)}.get(name, "0")
    divisor = quantity.parse(get_text(reference, "divisor") or "1").nano or quantity.parse("1").nano
    return str(math.ceil(quantity.parse(str(amount)).nano / divisor))


def _find_container(pod: Manifest, name: str) -> Manifest:
    for each in (*get_mappings(pod, "spec", "containers"), *get_mappings(pod, "spec", "initContainers")):
        if get_text(each, "name") == name:
            return each
    raise ContainerConfigError(f"container {name} not found")


def get_memory_limit(container: Manifest) -> int | None:
    """Return the memory limit of a container in bytes. Return None if it is missing or 0."""
    limit = get_mapping(container, "resources", "limits").get("memory")
    return None if limit is None else quantity.parse(str(limit)).nano // 10**9 or None


def build_command(container: Manifest, environment: DeclaredEnvironment) -> Sequence[str]:
    """Return the command and arguments in the manifest of a container; empty if it sets neither."""
    words = get_texts(container, "command") + get_texts(container, "args")
    return environment.names.rewrite_torchrun_options([environment.expand_argument(each) for each in words])
