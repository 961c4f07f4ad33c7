"""The containers of a pod: the resources, environment and security context that each one gets."""

from collections.abc import Callable, Sequence
from typing import Final

from backend_plugin.core.job import ReplicaGroup
from backend_plugin.core.manifest import pod_base, pod_env, pod_resources
from backend_plugin.core.manifest.pod_draft import PodDraft
from backend_plugin.core.manifest.pod_resources import NO_CLAIM, ResourceRequirements
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, omit_empty

KINDS: Final = ("initContainers", "containers")


def resolve_resources(
    draft: PodDraft, base: Fields, group: ResourceRequirements, settings: Settings
) -> Fields:
    """Return the pod spec of the task, in which every container has its final resources.

    Those of the role (`group`) override those of the container, and these override those of `base`. Those of
    the role apply only to the primary container and to init containers that are not sidecars. `base` is the
    PodTemplate, preceded by the containers of the role's own pod template.
    """

    def resolve(kind: str, container: Fields) -> Fields:
        name, own = container["name"], pod_resources.read_container_resources(container, settings)
        # An init container that always restarts is a sidecar; the role's resources do not apply to it.
        of_role = NO_CLAIM if container.get("restartPolicy") == "Always" else group
        trains = kind == "initContainers" or name == draft.primary
        if draft.is_decorated:
            inherited = pod_base.get_inherited_resources(base, name, settings)
            claim = of_role.with_defaults(own) if trains else pod_resources.subtract_primary(own, inherited)
            claim = pod_resources.normalize_resources(claim)
        else:
            below = pod_base.get_template_resources(base, kind, name, settings=settings, trains=trains)
            claim = (
                pod_resources.compute_trainer_resources(own, of_role, below, settings)
                if trains
                else pod_resources.compute_sidecar_resources(own, below, settings)
            )
        # The `claims` of a container refer to resource claims of the pod and are kept.
        return {**container, "resources": {**container.get("resources", {}), **claim.to_manifest()}}

    return _map_containers(draft.spec, resolve)


def with_flyte_defaults(spec: Fields, primary: str, env: Sequence[Fields], settings: Settings) -> Fields:
    """Return a spec with Flyte's environment in each container.

    The primary container gets the platform's default security context if it has none.
    """
    security = settings.default_security_context

    def decorate(kind: str, container: Fields) -> Fields:
        is_primary = kind == "containers" and container["name"] == primary
        if is_primary and security is not None and "securityContext" not in container:
            container = {**container, "securityContext": security}
        return pod_env.with_flyte_env(container, env, settings)

    return _map_containers(spec, decorate)


def finalize_spec(
    spec: Fields, primary: str, group: ReplicaGroup, settings: Settings, *, container_name: str
) -> Fields:
    """Return the spec, in which the primary container has its final name, image and variables."""

    def finish(kind: str, container: Fields) -> Fields:
        if kind == "containers" and container["name"] == primary:
            env = pod_env.build_training_env(container, group.processes, settings)
            named = {**container, "name": container_name, "env": env}
            return {**named, "image": group.image} if group.image else named
        return _without_duplicates(container)

    return _map_containers(spec, finish)


def _without_duplicates(container: Fields) -> Fields:
    """Return a container without repeated variables and ports, which the API server rejects in a job."""
    # A port with two names is a problem, see `pod_rules.containers`.
    ports = {
        (each.get("containerPort"), each.get("protocol", "TCP"), each.get("name")): each
        for each in container.get("ports", ())
    }
    env = pod_env.index_by_name(container.get("env", ()))
    return {**container, **omit_empty({"env": [*env.values()], "ports": [*ports.values()]})}


def _map_containers(spec: Fields, change: Callable[[str, Fields], Fields]) -> Fields:
    return {**spec, **{kind: [change(kind, each) for each in spec[kind]] for kind in KINDS if spec.get(kind)}}
