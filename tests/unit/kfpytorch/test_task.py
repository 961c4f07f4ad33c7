import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from flytekit import ImageSpec, PodTemplate, PythonFunctionTask, Resources, Workflow, dynamic, map_task, task
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable

import flytekitplugins.kfpytorch
from flytekitplugins.kfpytorch import Elastic, Master, PyTorch, RunPolicy, Worker, error_handling
from flytekitplugins.kfpytorch import pod_template as pods
from flytekitplugins.kfpytorch import task as module
from flytekitplugins.kfpytorch.problems import ConfigError

IMAGES = ImageConfig(
    default_image=Image(name="default", fqn="registry/default", tag="v1"),
    images=[Image(name="trainer", fqn="registry/trainer", tag="v2")],
)
SETTINGS = SerializationSettings(project="p", domain="d", version="v", image_config=IMAGES)


def train(steps: int = 1) -> int:
    """Train for some steps."""
    return steps


def defined(config: Any, **arguments: Any) -> Any:
    return task(train, task_config=config, **arguments)


def test_package_exports_only_the_names_for_authors() -> None:
    upstreams = {"CleanPodPolicy", "Elastic", "Master", "PyTorch", "RestartPolicy", "RunPolicy", "Worker"}
    ours = {"Dataset", "Gang", "Model", "PodFailurePolicyRule", "Storage", "SuccessPolicy", "Topology"}
    assert flytekitplugins.kfpytorch.__all__ == sorted(upstreams | ours | {"TrainJob"})
    assert all(getattr(module, name) is getattr(flytekitplugins.kfpytorch, name) for name in upstreams)
    with pytest.raises(AttributeError, match="no attribute 'Elastik'"):
        _ = module.Elastik


def test_task_registration_imports_neither_torch_nor_kubernetes() -> None:
    code = (
        "import sys, flytekit\n"
        "from flytekit.configuration import Image, ImageConfig, SerializationSettings\n"
        "from flytekit.tools.translator import get_serializable\n"
        "from flytekitplugins.kfpytorch import *\n"
        "from flytekitplugins.kfpytorch.custom import encode_pytorch\n"
        "def train(): pass\n"
        "made = flytekit.task(train, task_config=Elastic(nnodes=2))\n"
        "images = ImageConfig(default_image=Image(name='default', fqn='registry/default', tag='v1'))\n"
        "get_serializable({}, SerializationSettings(image_config=images), made)\n"
        "pod = flytekit.PodTemplate(pod_spec={'containers': [{'name': 'primary'}]})\n"
        "config = PyTorch(worker=Worker(replicas=2))\n"
        "flytekit.task(lambda: None, task_config=config, pod_template=pod)\n"
        "print({'torch', 'kubernetes', 'difflib'} & set(sys.modules))\n"
        # Only an extension needs the protobuf messages.
        "encode_pytorch(config)\n"
        "print([name for name in sys.modules if name.startswith('kfpytorch_idl')])"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n[]\n", "")


@pytest.mark.parametrize(
    "config", [PyTorch(num_workers=1), Elastic(), Elastic(nnodes="1"), Elastic(nnodes="2:4")]
)
def test_task_type_is_derived_from_the_config(config: Any) -> None:
    made = defined(config)
    is_standalone = config == Elastic()
    task_type = "python-task" if is_standalone else "pytorch"
    assert (made.task_type, made.task_type_version) == (task_type, 1)
    assert (made.get_custom(SETTINGS) is None) is is_standalone
    if isinstance(config, Elastic):
        assert (made.min_nodes, made.max_nodes, made.rdzv_backend) == (*config.min_max_nodes(), "c10d")


def test_number_of_workers_is_required() -> None:
    with pytest.raises(ConfigError, match=r"worker.replicas=None: how many workers\?"):
        defined(PyTorch())
    config = PyTorch()
    config.worker.replicas = 2
    assert defined(config).get_custom(SETTINGS)["workerReplicas"]["replicas"] == 2


def test_config_may_change_until_it_is_encoded() -> None:
    made = defined(PyTorch(num_workers=2))
    made.task_config.num_workers = None
    made.task_config.worker.replicas = 5
    assert made.get_custom(SETTINGS)["workerReplicas"]["replicas"] == 5
    made.task_config.worker.replicas = -5
    elastic = defined(Elastic(nnodes=2))
    elastic.task_config.nproc_per_node = "gpus"
    for invalid in (made, elastic):
        with pytest.raises(ConfigError):
            invalid.get_custom(SETTINGS)


@pytest.mark.parametrize("config", [PyTorch(num_workers=1), Elastic()])
def test_pod_template_is_built_once_on_first_access(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.logger, "warning", pytest.fail)
    made = defined(config)
    assert made.pod_template == pods.build(None, shared_memory=True)
    assert made.pod_template is made.pod_template


@pytest.mark.parametrize("config", [PyTorch(num_workers=1), Elastic(), Elastic(nnodes=2)])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"environment": {"A": "1", "B": "", "D": None}, "container_image": "{{.image.trainer.fqn}}:v9"},
        {"requests": Resources(cpu="2", mem="1Gi"), "limits": Resources(gpu="1", ephemeral_storage="3Gi")},
        {"pod_template": PodTemplate(labels={"a": "b"})},
        {"pod_template": PodTemplate(primary_container_name="trainer")},
        {"shared_memory": True},
    ],
    ids=str,
)
def test_pod_is_serialized_like_flytekit_does(config: Any, arguments: dict[str, Any]) -> None:
    # Two tasks, because a task whose template was read leaves the pod to flytekit.
    made, reference = defined(config, **arguments), defined(config, **arguments)
    settings = replace(SETTINGS, env={"C": "3"})
    for encoded, flytekits in (
        (made.get_k8s_pod(settings), PythonFunctionTask.get_k8s_pod(reference, settings)),
        (made.get_container(settings), PythonFunctionTask.get_container(reference, settings)),
    ):
        assert (encoded and encoded.to_flyte_idl()) == (flytekits and flytekits.to_flyte_idl())
    assert made.get_config(settings) == PythonFunctionTask.get_config(reference, settings)


def test_numeric_amounts_are_serialized_as_text_also_after_the_template_was_read() -> None:
    made = defined(Elastic(), limits=Resources(cpu=0.5, gpu=1))
    before = made.get_k8s_pod(SETTINGS)
    assert before.pod_spec["containers"][0]["resources"]["limits"] == {"cpu": "0.5", "gpu": "1"}
    assert made.pod_template is not None
    assert made.get_k8s_pod(SETTINGS).to_flyte_idl() == before.to_flyte_idl()


def test_changes_of_the_built_pod_template_are_serialized() -> None:
    made = defined(Elastic())
    made.pod_template.labels = {"team": "a"}
    pod = made.get_k8s_pod(SETTINGS)
    assert pod.metadata.labels == {"team": "a"}
    assert pod.pod_spec["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]


def test_assigned_pod_template_is_serialized_as_it_is() -> None:
    made = defined(Elastic())
    made.pod_template = None
    assert (made.get_k8s_pod(SETTINGS), made.get_config(SETTINGS)) == (None, {})
    assert made.get_container(SETTINGS).image == "registry/default:v1"


@pytest.mark.parametrize("config", [PyTorch(num_workers=1), Elastic()])
@pytest.mark.parametrize("amount", [True, "2Gi"])
def test_shared_memory_of_flytekit_takes_precedence(config: Any, amount: object) -> None:
    assert defined(config, shared_memory=amount).pod_template is None


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Define a task and assign it to a variable of this module, where flytekit's loader finds it."""

    def make(config: Any, **arguments: Any) -> Any:
        made = defined(config, **arguments)
        monkeypatch.setattr(sys.modules[__name__], "found_by_flytekit", made, raising=False)
        return made

    return make


@pytest.mark.parametrize(
    ("config", "override", "expected"),
    [
        (PyTorch(num_workers=1), PyTorch(num_workers=7, increase_shared_mem=False), (7, False)),
        (Elastic(), Elastic(nnodes="2:4"), (4, True)),
    ],
)
def test_override_replaces_the_whole_config(config, override, expected, made_here) -> None:
    made = made_here(config)
    assert made.pod_template is not None
    workflow = Workflow(name="w")
    workflow.add_entity(made, steps=1).with_overrides(task_config=override)
    models: Any = OrderedDict()
    get_serializable(models, SETTINGS, workflow)
    template = models[made].template
    replicas = template.custom["workerReplicas"]["replicas"]
    assert (template.type, replicas, template.k8s_pod is not None) == ("pytorch", *expected)


def test_override_is_checked_like_a_config() -> None:
    node = Workflow(name="w").add_entity(defined(PyTorch(num_workers=1)), steps=1)
    with pytest.raises(ConfigError, match="how many workers"):
        node.with_overrides(task_config=PyTorch())


def test_role_images_are_resolved_like_that_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ImageSpec(name="spec", registry="example.com")
    built = []
    monkeypatch.setattr("flytekit.core.python_auto_container.ImageBuildEngine.build", built.append)
    made = defined(PyTorch(Master(image="{{.image.trainer}}"), Worker(image=spec, replicas=1)))
    custom = made.get_custom(SETTINGS)
    assert custom["masterReplicas"]["image"] == "registry/trainer:v2"
    assert custom["workerReplicas"]["image"] == spec.image_name()
    assert built == [spec]


def test_unknown_image_is_reported_with_task_and_field_and_a_full_name_needs_no_configuration() -> None:
    made = defined(PyTorch(worker=Worker(image="a:1", replicas=1)))
    assert made.get_custom(SerializationSettings(image_config=None))["workerReplicas"]["image"] == "a:1"
    made = defined(PyTorch(Master(image="{{.image.absent}}"), Worker(replicas=1)))
    with pytest.raises(ConfigError, match="absent not found") as caught:
        made.get_custom(SETTINGS)
    place = "master.image='{{.image.absent}}'"
    assert str(caught.value).startswith(f"{made.name}: {place}: ")


@pytest.mark.parametrize("config", [PyTorch(num_workers=1), Elastic(nnodes=2)])
def test_task_survives_cloudpickle(config: Any) -> None:
    made = defined(config, requests=Resources(cpu="1"))
    again = cloudpickle.loads(cloudpickle.dumps(made))
    assert again.task_config == config
    assert again.get_custom(SETTINGS) == made.get_custom(SETTINGS)
    assert again.pod_template == made.pod_template


def test_mapped_task_keeps_its_config_and_a_dynamic_task_runs_locally() -> None:
    assert map_task(defined(PyTorch(num_workers=2))).get_custom(SETTINGS)["workerReplicas"]["replicas"] == 2

    @dynamic(task_config=PyTorch(num_workers=1))
    def plan(steps: int) -> int:
        return steps + 1

    assert plan(steps=1) == 2


def test_ineffective_setting_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(module.logger, "warning", logged.append)
    defined(PyTorch(num_workers=1, run_policy=RunPolicy(backoff_limit=0)))
    assert logged == [
        "PyTorch: run_policy.backoff_limit=0 has no effect: Flyte treats 0 as unset; the minimum is 1"
    ]


def test_recoverable_marker_is_created_next_to_the_error_file(tmp_path, monkeypatch) -> None:
    failure = SimpleNamespace(error_file=str(tmp_path / "error.json"))
    assert not error_handling.is_recoverable_worker_error(failure)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", failure.error_file)
    for _ in range(2):
        error_handling.create_recoverable_error_file()
    (marker,) = tmp_path.iterdir()
    assert marker.name == error_handling.RECOVERABLE_ERROR_FILE_NAME == "recoverable_error"
    assert error_handling.is_recoverable_worker_error(failure)
    # Only a worker of torch has the variable.
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    with pytest.raises(ValueError, match="TORCHELASTIC_ERROR_FILE"):
        error_handling.create_recoverable_error_file()
