"""The containers of a pod: their resources, environment, security context and shared memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from flyteidl.core.tasks_pb2 import SharedMemory

from backend_plugin.core.errors import Problem
from backend_plugin.core.job import Attempt, ReplicaGroup
from backend_plugin.core.manifest import pod_base, pod_resources
from backend_plugin.core.manifest.pod_draft import PodDraft
from backend_plugin.core.manifest.pod_resources import NO_CLAIM, ResourceRequirements
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.schema_check import QUANTITY, check_value
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, omit_empty
from kfpytorch_common.quantity import parse

KINDS: Final = ("initContainers", "containers")
_SHARED_MEMORY: Final = "extendedResources.sharedMemory"
_FAIL_ON_ERROR: Final = "FLYTE_FAIL_ON_ERROR"
_REPORTING: Final = (
    {"name": "_F_WN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "_F_DES", "value": "Earliest"},
)
_THREADS: Final = "OMP_NUM_THREADS"


def resolve_resources(
    draft: PodDraft, base: Fields, group: ResourceRequirements, settings: Settings
) -> Fields:
    """Return the pod spec of the task, in which every container has its final resources.

    The resources of the role (`group`) override those of the container, which override those of `base`. The
    role's resources apply only to the primary container and to init containers that are not sidecars. `base`
    is the PodTemplate, preceded by the containers of the role's own pod template.
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
        return _with_flyte_env(container, env, settings)

    return _map_containers(spec, decorate)


def finalize_spec(
    spec: Fields, primary: str, group: ReplicaGroup, settings: Settings, *, container_name: str
) -> Fields:
    """Return the spec, in which the primary container has its final name, image and variables."""

    def finish(kind: str, container: Fields) -> Fields:
        if kind == "containers" and container["name"] == primary:
            env = _build_training_env(container, group.processes, settings)
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
    env = _index_by_name(container.get("env", ()))
    return {**container, **omit_empty({"env": [*env.values()], "ports": [*ports.values()]})}


def _map_containers(spec: Fields, change: Callable[[str, Fields], Fields]) -> Fields:
    return {**spec, **{kind: [change(kind, each) for each in spec[kind]] for kind in KINDS if spec.get(kind)}}


# ---- environment variables


def _with_flyte_env(container: Fields, env: Sequence[Fields], settings: Settings) -> dict[str, Any]:
    """Return the container with the variables `env` and the platform's Secrets and ConfigMaps.

    `env` is the result of `build_execution_env`.
    """
    env = [*container.get("env", ()), *env]
    sources = [*container.get("envFrom", ()), *_build_sources(settings)]
    return {**container, "env": env, **({"envFrom": sources} if sources else {})}


def build_execution_env(run: Attempt, settings: Settings) -> list[dict[str, Any]]:
    """Return the variables of every container, from the execution and the platform."""
    known = {
        "FLYTE_INTERNAL_EXECUTION_ID": run.execution,
        "FLYTE_INTERNAL_EXECUTION_PROJECT": run.project,
        "FLYTE_INTERNAL_EXECUTION_DOMAIN": run.domain,
        "FLYTE_ATTEMPT_NUMBER": str(run.attempt),
    }
    task = {
        "FLYTE_INTERNAL_TASK_PROJECT": run.task_project,
        "FLYTE_INTERNAL_TASK_DOMAIN": run.task_domain,
        "FLYTE_INTERNAL_TASK_NAME": run.task_name,
        "FLYTE_INTERNAL_TASK_VERSION": run.task_version,
    }
    # If the execution does not name its task, omit these variables.
    known |= task if any(task.values()) else {}
    entries = [{"name": name, "value": value} for name, value in known.items()]
    return [*entries, *_build_entries(run.environment), *_build_entries(settings.default_env_vars)]


def _build_training_env(container: Fields, processes: int, settings: Settings) -> list[Fields]:
    """Return the final environment of the primary container, with one entry for each name.

    It includes variables for the number of threads and for the failure reports of flytekit. `processes` is
    the number of training processes in the container.
    """
    by_name = _index_by_name(container.get("env", ()))
    added = {**_build_thread_env(container, processes), **settings.kfpytorch.training_env}
    # The names in the Secret or ConfigMap are unknown here, and an added variable might override one of them.
    for each in () if container.get("envFrom") else _build_entries(omit_empty(added)):
        by_name.setdefault(each["name"], each)
    by_name.setdefault(_FAIL_ON_ERROR, {"name": _FAIL_ON_ERROR, "value": "true"})
    return [*{**by_name, **_index_by_name(_REPORTING)}.values()]


def _build_thread_env(container: Fields, processes: int) -> dict[str, str]:
    """Return ``OMP_NUM_THREADS`` for the CPU limit of a container with one process.

    By default, torch starts a thread for each CPU of the node, which is slow under a lower limit.
    """
    limit = container.get("resources", {}).get("limits", {}).get("cpu")
    if not limit or processes > 1:
        return {}
    return {_THREADS: str(max(1, parse(limit).whole))}


def _index_by_name(env: Sequence[Fields]) -> dict[object, Fields]:
    """Return the last variable with each name, because the API server rejects repeated names in a job."""
    return {each.get("name"): each for each in env}


def _build_entries(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]


def _build_sources(settings: Settings) -> list[dict[str, Any]]:
    names = {
        "secretRef": settings.default_env_from_secrets,
        "configMapRef": settings.default_env_from_configmaps,
    }
    return [{kind: {"name": name, "optional": True}} for kind in names for name in names[kind]]


# ---- shared memory


def with_shared_memory(spec: Fields, memory: SharedMemory, primary: str) -> Fields:
    """Return a spec with the shared memory mounted in the primary container.

    `check_shared_memory` must have found no problem.
    """
    # Without a size Flyte writes zero, which Kubernetes interprets as no limit.
    size = parse(memory.size_limit or "0").text
    volume = {"name": memory.mount_name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    mount = {"name": memory.mount_name, "mountPath": memory.mount_path}
    containers = [
        {**each, "volumeMounts": [*each.get("volumeMounts", ()), mount]} if each["name"] == primary else each
        for each in spec["containers"]
    ]
    return {**spec, "containers": containers, "volumes": [*spec.get("volumes", ()), volume]}


def check_shared_memory(spec: Fields, memory: SharedMemory, primary: str) -> Iterator[Problem]:
    """Yield a problem for each reason why the shared memory cannot be mounted."""
    for name, value in (("mountName", memory.mount_name), ("mountPath", memory.mount_path)):
        if not value:
            yield _problem(name, value, "is empty", "write one")
    if memory.size_limit:
        yield from check_value(memory.size_limit, QUANTITY, f"{_SHARED_MEMORY}.sizeLimit")
    yield from _check_mount_conflicts(spec, memory, primary)


def _check_mount_conflicts(spec: Fields, memory: SharedMemory, primary: str) -> Iterator[Problem]:
    mounts: Sequence[Fields] = next(
        (each.get("volumeMounts", ()) for each in spec["containers"] if each["name"] == primary), ()
    )
    names = {each.get("name") for each in (*spec.get("volumes", ()), *mounts)}
    if memory.mount_name in names:
        yield _problem("mountName", memory.mount_name, "is the name of another volume", "write another name")
    if memory.mount_path in {each.get("mountPath") for each in mounts}:
        yield _problem(
            "mountPath", memory.mount_path, "is the mount path of another volume", "leave one of them out"
        )


def _problem(field: str, value: str, message: str, remedy: str) -> Problem:
    return build_problem(f"{_SHARED_MEMORY}.{field}", value, message, remedy)
