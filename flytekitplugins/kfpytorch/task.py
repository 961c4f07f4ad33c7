"""The Flyte task classes for `PyTorch` and `Elastic`, and their registration with flytekit."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Final, TypeVar

from flytekit import ImageSpec, PodTemplate, PythonFunctionTask
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.core.pod_template import PRIMARY_CONTAINER_DEFAULT_NAME
from flytekit.core.python_auto_container import (
    get_registerable_container_image,
    update_image_spec_copy_handling,
)
from flytekit.extend import TaskPlugins
from flytekit.loggers import logger
from flytekit.models.task import Container, K8sPod

from flytekitplugins.kfpytorch import custom, definition
from flytekitplugins.kfpytorch import pod_template as pods
from flytekitplugins.kfpytorch.config import Elastic, Master, PyTorch, RunPolicy, Worker
from flytekitplugins.kfpytorch.policies import CleanPodPolicy, RestartPolicy
from flytekitplugins.kfpytorch.problems import ConfigError, ConfigProblem
from flytekitplugins.kfpytorch.worker import TORCH_IMPORT_ERROR_MESSAGE, loading
from kfpytorch_common.loaded_modules import find_loaded

# flytekit's own plugin has a module `task` with these names.
__all__ = [
    "TORCH_IMPORT_ERROR_MESSAGE", "CleanPodPolicy", "Elastic", "Master", "PyTorch", "PyTorchFunctionTask",
    "PytorchElasticFunctionTask", "RestartPolicy", "RunPolicy", "Worker",
]  # fmt: skip

# The version of the format of `custom`. Flyte's backend reads version 0 in another format.
_TASK_TYPE_VERSION: Final = 1

C = TypeVar("C", PyTorch, Elastic)


class _DistributedTask(PythonFunctionTask[C]):
    """The base class of `PyTorch` and `Elastic` tasks.

    The class checks the config, and builds the pod template when it is first read.
    """

    _TASK_TYPE: ClassVar[str] = "pytorch"

    author_pod: PodTemplate | None
    """The pod template that the author passed to ``@task``, or that code assigned to `pod_template` later."""
    _is_pod_final: bool
    """True if code assigned `pod_template`. Shared memory is not added to such a template."""
    _built: tuple[bool, PodTemplate | None] | None
    """A pair: True if shared memory was required, and the built pod template. None before the build."""
    _checked_config: C

    def __init__(self, task_config: C, task_function: Callable[..., Any], **kwargs: Any) -> None:
        definition.require_valid_task(task_config, kwargs)
        self.globals_at_definition = loading.read_plain_globals(task_function)
        if find_loaded("torch"):  # Without torch, no task can use the type `torch.nn.Module`.
            import_module("flytekitplugins.kfpytorch.torch_models").register()
        super().__init__(
            task_config=task_config,
            task_function=task_function,
            task_type=self._TASK_TYPE,
            task_type_version=_TASK_TYPE_VERSION,
            **kwargs,
        )
        self._is_pod_final, self._built = False, None

    @property
    def _task_config(self) -> C:
        """The config. flytekit sets it when a task is defined, and in ``with_overrides(task_config=...)``."""
        return self._checked_config

    @_task_config.setter
    def _task_config(self, config: C) -> None:
        definition.require_valid_config(config)
        for sentence in custom.iter_ineffective_settings(config):
            logger.warning(f"{type(config).__name__}: {sentence}")
        self._checked_config = config

    @property
    def pod_template(self) -> PodTemplate | None:
        """The pod template of a replica: the author's, with shared memory if the config requires it.

        The template is built when this property is first read, because the build imports kubernetes. A
        template that was assigned to this property is returned unchanged, without added shared memory.
        """
        if self._is_pod_final:
            return self.author_pod
        wanted = definition.needs_shared_memory(self.task_config, self.shared_memory)
        if self._built is None or self._built[0] is not wanted:
            self._built = wanted, pods.build(self.author_pod, shared_memory=wanted)
        return self._built[1]

    @pod_template.setter
    def pod_template(self, template: PodTemplate | None) -> None:
        self.author_pod = template
        self._is_pod_final = True

    def _has_default_pod(self) -> bool:
        """True if the pod template only adds shared memory, which does not require the import of kubernetes.

        Return False after `pod_template` was read, because code that read it may have changed it.
        """
        is_untouched = self._built is None and not self._is_pod_final
        wanted = definition.needs_shared_memory(self.task_config, self.shared_memory)
        return is_untouched and wanted and self.author_pod is None

    def _get_container(self, settings: SerializationSettings) -> Container:
        """Return the container of the replicas, with resource amounts such as ``gpu=1`` as text.

        flytekit does not convert numbers to text, and the models of newer kubernetes packages reject numbers.
        """
        container: Container = super()._get_container(settings)
        for entry in (*container.resources.limits, *container.resources.requests):
            entry._value = str(entry.value)  # noqa: SLF001 - there is no setter.
        return container

    def get_container(self, settings: SerializationSettings) -> Container | None:
        """Return the container of the replicas, or None if they have a pod template."""
        return None if self._has_default_pod() else super().get_container(settings)

    def get_k8s_pod(self, settings: SerializationSettings) -> K8sPod | None:
        """Return the pod of the replicas, or None if they have no pod template."""
        if self._has_default_pod():
            return pods.serialize_default_pod(self._get_container(settings))
        return super().get_k8s_pod(settings)

    def get_config(self, settings: SerializationSettings) -> dict[str, str]:
        """Return the `config` field of the task template.

        If the replicas have a pod template, the field contains the name of the primary container. Otherwise,
        the field is empty.
        """
        if self._has_default_pod():
            return {"primary_container_name": PRIMARY_CONTAINER_DEFAULT_NAME}
        config: dict[str, str] = super().get_config(settings)
        return config


class PyTorchFunctionTask(_DistributedTask[PyTorch]):
    """A function that runs on a master and workers: a PyTorchJob or TrainJob in a cluster."""

    def execute(self, **kwargs: Any) -> Any:
        """Run the function in this pod as one replica, or in a local run. Return the result of rank 0.

        Raises:
            IgnoreOutputs: In a pod, on every rank except 0, because Flyte stores only the result of rank 0.
        """
        if self.execution_mode is not self.ExecutionBehavior.DEFAULT:
            return super().execute(**kwargs)  # For @dynamic, flytekit runs the function itself.
        from flytekitplugins.kfpytorch.worker import launch

        return launch.run_pytorch(self, kwargs)

    def get_custom(self, settings: SerializationSettings) -> dict[str, Any]:
        """Return the `custom` field of the task template.

        Raises:
            ConfigError: If the config has been changed after its construction, and is invalid now.
        """
        definition.require_valid_config(self.task_config)
        return custom.encode_pytorch(self.task_config, lambda role: self._resolve_image(role, settings))

    def _resolve_image(self, role: Master | Worker, settings: SerializationSettings) -> str:
        if isinstance(role.image, ImageSpec):
            update_image_spec_copy_handling(role.image, settings)
        try:
            name: str = get_registerable_container_image(role.image, settings.image_config or ImageConfig())
        except AssertionError as error:  # The name contains a placeholder that flytekit cannot replace.
            field = "master.image" if isinstance(role, Master) else "worker.image"
            raise ConfigError(self.name, [ConfigProblem(field, role.image, str(error))]) from error
        return name


class PytorchElasticFunctionTask(_DistributedTask[Elastic]):
    """A function that runs in one pod, or on the nodes of a PyTorchJob or TrainJob."""

    _STANDALONE_TASK_TYPE: ClassVar[str] = "python-task"

    rdzv_backend: str = custom.RDZV_BACKEND

    @property
    def task_type(self) -> str:
        """The Flyte task type: ``python-task`` for an ordinary pod (``nnodes=1``), otherwise ``pytorch``."""
        return self._STANDALONE_TASK_TYPE if self.task_config.is_standalone() else self._TASK_TYPE

    @property
    def min_nodes(self) -> int:
        """The smallest number of nodes in ``nnodes``: training starts with this number."""
        return self._checked_config.min_max_nodes()[0]

    @property
    def max_nodes(self) -> int:
        """The largest number of nodes in ``nnodes``."""
        return self._checked_config.min_max_nodes()[1]

    def execute(self, **kwargs: Any) -> Any:
        """Run the function on the node of this pod, or on all nodes in a local run.

        Return the result of rank 0.

        Raises:
            FlyteRecoverableException: If the root cause is a recoverable failure.
            FlyteUserRuntimeException: If the root cause is any other failure of a rank.
            IgnoreOutputs: In a pod, if rank 0 runs on another node.
        """
        return self._execute(**kwargs)

    def _execute(self, **kwargs: Any) -> Any:
        from flytekitplugins.kfpytorch.worker import launch

        return launch.run_elastic(self, kwargs)

    def get_custom(self, settings: SerializationSettings) -> dict[str, Any] | None:  # noqa: ARG002
        """Return the `custom` field of the task template, which is None for an ordinary pod.

        Raises:
            ConfigError: If the config has been changed after its construction, and is invalid now.
        """
        self.task_config.check()
        if self.task_config.is_standalone():
            return None
        return custom.encode_elastic(self.task_config, definition.count_processes(self))


# The names in `task` of flytekit's own plugin that are defined in the package `worker` here. They are
# imported on first access.
_ELSEWHERE: Final = {"ElasticWorkerResult": "worker.result", "spawn_helper": "worker.replica"}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"flytekitplugins.kfpytorch.{_ELSEWHERE[name]}"), name)


TaskPlugins.register_pythontask_plugin(PyTorch, PyTorchFunctionTask)
TaskPlugins.register_pythontask_plugin(Elastic, PytorchElasticFunctionTask)
