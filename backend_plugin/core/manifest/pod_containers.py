"""The containers of a pod: the resources, environment and security context that each one gets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from backend_plugin.core.job import ReplicaGroup
from backend_plugin.core.manifest import pod_base, pod_env, pod_resources
from backend_plugin.core.manifest.pod_draft import PodDraft
from backend_plugin.core.manifest.pod_resources import NO_CLAIM, ResourceRequirements
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import omit_empty

KINDS: Final = ("initContainers", "containers")


class ResourceResolver(msgspec.Struct, frozen=True, kw_only=True):
    """Computes the resources of a container: of its role, its own, and in a PodTemplate, in this order."""

    draft: PodDraft
    base: Mapping[str, Any]
    """The ``template`` of the PodTemplate, preceded by the containers of the role's pod template."""
    group: ResourceRequirements
    """The resources of the role."""
    settings: Settings

    def resolve_spec(self) -> Mapping[str, Any]:
        """Return the pod spec of the task template, in which every container has the computed resources."""
        return _map_containers(self.draft.spec, self._with_resources)

    def _with_resources(self, kind: str, container: Mapping[str, Any]) -> Mapping[str, Any]:
        # The `claims` of a container refer to resource claims of the pod and are kept.
        resources = container.get("resources", {})
        return {
            **container,
            "resources": {**resources, **self._resolve_container(kind, container).to_manifest()},
        }

    def _resolve_container(self, kind: str, container: Mapping[str, Any]) -> ResourceRequirements:
        own = pod_resources.read_container_resources(container, self.settings)
        # An init container that always restarts is a sidecar; the role's resources do not apply to it.
        group = NO_CLAIM if container.get("restartPolicy") == "Always" else self.group
        name = container["name"]
        trains = kind == "initContainers" or name == self.draft.primary
        if self.draft.is_decorated:
            inherited = pod_base.get_inherited_resources(self.base, name, self.settings)
            claim = pod_resources.subtract_primary(own, inherited)
            return pod_resources.normalize_resources(group.with_defaults(own) if trains else claim)
        below = pod_base.get_template_resources(self.base, kind, name, settings=self.settings, trains=trains)
        if trains:
            return pod_resources.compute_trainer_resources(own, group, below, self.settings)
        return pod_resources.compute_sidecar_resources(own, below, self.settings)


def with_flyte_defaults(
    spec: Mapping[str, Any], primary: str, env: Sequence[Mapping[str, Any]], settings: Settings
) -> Mapping[str, Any]:
    """Return a spec with Flyte's environment, and the default security context in the primary container."""
    security = settings.default_security_context

    def decorate(kind: str, container: Mapping[str, Any]) -> Mapping[str, Any]:
        is_primary = kind == "containers" and container["name"] == primary
        if is_primary and security is not None and "securityContext" not in container:
            container = {**container, "securityContext": security}
        return pod_env.with_flyte_env(container, env, settings)

    return _map_containers(spec, decorate)


def finalize_spec(
    spec: Mapping[str, Any], primary: str, group: ReplicaGroup, settings: Settings, *, container_name: str
) -> Mapping[str, Any]:
    """Return the spec, in which the primary container has its final name, image and variables."""

    def finish(kind: str, container: Mapping[str, Any]) -> Mapping[str, Any]:
        if kind == "containers" and container["name"] == primary:
            env = pod_env.build_training_env(container, group.processes, settings)
            named = {**container, "name": container_name, "env": env}
            return {**named, "image": group.image} if group.image else named
        return _without_duplicates(container)

    return _map_containers(spec, finish)


def _without_duplicates(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container without repeated variables and ports, which the API server rejects in a job."""
    # A port with two names is a problem, see `pod_rules.containers`.
    ports = {
        (each.get("containerPort"), each.get("protocol", "TCP"), each.get("name")): each
        for each in container.get("ports", ())
    }
    env = pod_env.index_by_name(container.get("env", ()))
    return {**container, **omit_empty({"env": [*env.values()], "ports": [*ports.values()]})}


def _map_containers(
    spec: Mapping[str, Any], change: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
) -> Mapping[str, Any]:
    return {**spec, **{kind: [change(kind, each) for each in spec[kind]] for kind in KINDS if spec.get(kind)}}
