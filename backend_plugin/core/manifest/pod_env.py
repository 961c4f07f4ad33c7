"""The environment variables of each container, except those that the operator adds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from backend_plugin.core.job import Attempt
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, omit_empty
from kfpytorch_common.quantity import parse

_FAIL_ON_ERROR: Final = "FLYTE_FAIL_ON_ERROR"
_REPORTING: Final = (
    {"name": "_F_WN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "_F_DES", "value": "Earliest"},
)
_THREADS: Final = "OMP_NUM_THREADS"


def with_flyte_env(container: Fields, env: Sequence[Fields], settings: Settings) -> dict[str, Any]:
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


def build_training_env(container: Fields, processes: int, settings: Settings) -> list[Fields]:
    """Return the final environment of the primary container, with one entry for each name.

    It includes variables for the number of threads and for the failure reports of flytekit. `processes` is
    the number of training processes in the container.
    """
    by_name = index_by_name(container.get("env", ()))
    added = {**_build_thread_env(container, processes), **settings.kfpytorch.training_env}
    # The names in the Secret or ConfigMap are unknown here, and an added variable might override one of them.
    for each in () if container.get("envFrom") else _build_entries(omit_empty(added)):
        by_name.setdefault(each["name"], each)
    by_name.setdefault(_FAIL_ON_ERROR, {"name": _FAIL_ON_ERROR, "value": "true"})
    return [*{**by_name, **index_by_name(_REPORTING)}.values()]


def _build_thread_env(container: Fields, processes: int) -> dict[str, str]:
    """Return ``OMP_NUM_THREADS`` for the CPU limit of a container with one process.

    By default, torch starts a thread for each CPU of the node, which is slow under a lower limit.
    """
    limit = container.get("resources", {}).get("limits", {}).get("cpu")
    if not limit or processes > 1:
        return {}
    return {_THREADS: str(max(1, parse(limit).whole))}


def index_by_name(env: Sequence[Fields]) -> dict[object, Fields]:
    """Return the last entry of each name, because the API server rejects duplicate names in a job."""
    return {each.get("name"): each for each in env}


def _build_entries(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]


def _build_sources(settings: Settings) -> list[dict[str, Any]]:
    return [
        {kind: {"name": name, "optional": True}}
        for kind, names in (
            ("secretRef", settings.default_env_from_secrets),
            ("configMapRef", settings.default_env_from_configmaps),
        )
        for name in names
    ]
