import copy
from typing import Any

import pytest
from flytekit import PodTemplate
from kubernetes.client import (
    V1Container,
    V1EmptyDirVolumeSource,
    V1PodSpec,
    V1ResourceRequirements,
    V1Volume,
    V1VolumeMount,
)

from flytekitplugins.kfpytorch.pod_template import add_shared_mem_volume_to_pod_template, build, find_problems

VOLUME = V1Volume(name="shm", empty_dir=V1EmptyDirVolumeSource(medium="Memory"))
MOUNT = V1VolumeMount(name="shm", mount_path="/dev/shm")
SLASH_MOUNT = V1VolumeMount(name="x", mount_path="/dev/shm/")
MOUNT_IN_DICT = {"containers": [{"name": "primary", "volumeMounts": [{"mountPath": "/dev/shm"}]}]}
OTHER_VOLUME = V1Volume(name="data")
OTHER_MOUNT = V1VolumeMount(name="data", mount_path="/data")


def container(name: str = "primary", *mounts: V1VolumeMount) -> V1Container:
    return V1Container(name=name, volume_mounts=[*mounts]) if mounts else V1Container(name=name)


def pod(*containers: V1Container, volumes: Any = None, primary: str = "primary") -> PodTemplate:
    spec = V1PodSpec(containers=[*containers], volumes=volumes)
    return PodTemplate(pod_spec=spec, primary_container_name=primary, labels={"a": "b"})


OF_MAIN = (pod(container("main"), primary="main"), pod(primary="main"))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, PodTemplate(pod_spec=V1PodSpec(containers=[container("primary", MOUNT)], volumes=[VOLUME]))),
        (
            pod(container("primary", OTHER_MOUNT), volumes=[OTHER_VOLUME]),
            pod(container("primary", OTHER_MOUNT, MOUNT), volumes=[OTHER_VOLUME, VOLUME]),
        ),
        # The name identifies the primary container, which may be missing.
        *((each, pod(container("main", MOUNT), volumes=[VOLUME], primary="main")) for each in OF_MAIN),
    ],
)
def test_shared_memory_is_mounted_in_the_primary_container(template, expected) -> None:
    before = copy.deepcopy(template)
    assert [*find_problems(template, shared_memory=True)] == []
    assert build(template, shared_memory=True) == expected
    assert template == before


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (pod(container(), container("b")), "has 2 containers"),
        (pod(container("primary", MOUNT), volumes=[VOLUME]), "already mounts /dev/shm"),
        (pod(container("primary", SLASH_MOUNT)), "already mounts /dev/shm"),
        (pod(container(), volumes=[VOLUME]), "already has a volume named 'shm'"),
        (PodTemplate(pod_spec=MOUNT_IN_DICT), "already mounts /dev/shm"),
    ],
)
def test_conflict_with_shared_memory_is_an_error_with_a_remedy(template: PodTemplate, reason: str) -> None:
    before = copy.deepcopy(template)
    with pytest.raises(ValueError, match=f"{reason}.* set increase_shared_mem=False"):
        add_shared_mem_volume_to_pod_template(template)
    assert template == before
    assert [*find_problems(template, shared_memory=False)] == []


LIMITS = V1ResourceRequirements(limits={"cpu": "2"})
MODEL = V1PodSpec(
    containers=[V1Container(name="primary", volume_mounts=[OTHER_MOUNT], resources=LIMITS)],
    node_selector={"pool": "gpu"},
    volumes=[OTHER_VOLUME],
)
MOUNTS = [{"name": "data", "mountPath": "/data"}]
CONTAINERS = [{"name": "primary", "volumeMounts": MOUNTS, "resources": {"limits": {"cpu": 2}}}]
MANIFEST = {"containers": CONTAINERS, "nodeSelector": {"pool": "gpu"}, "volumes": [{"name": "data"}]}


@pytest.mark.parametrize("spec", [MANIFEST, MODEL.to_dict() | {"volumes": [OTHER_VOLUME]}])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_dict_and_model_give_the_same_template(spec: dict[str, Any], shared_memory: bool) -> None:
    before = copy.deepcopy(spec)
    template = PodTemplate(pod_spec=spec)
    expected = build(PodTemplate(pod_spec=MODEL), shared_memory=shared_memory)
    assert build(template, shared_memory=shared_memory) == expected
    assert template.pod_spec == before


def test_template_without_shared_memory_is_unchanged_and_a_dict_without_containers_completed() -> None:
    for template in (None, pod(container())):
        assert build(template, shared_memory=False) is template
    assert build(PodTemplate(pod_spec={}), shared_memory=False) == PodTemplate()


def test_unknown_or_missing_field_and_wrong_type_are_rejected_with_their_path() -> None:
    spec = {"containers": [{"name": "primary", "volumeMount": []}]}
    reason = r"pod_spec\.containers\[0\]\.volumeMount: V1Container has no such field; .* 'volumeMounts'"
    with pytest.raises(ValueError, match=reason):
        build(PodTemplate(pod_spec=spec), shared_memory=True)
    with pytest.raises(ValueError, match=r"pod_spec\.containers\[0\]: "):
        build(PodTemplate(pod_spec={"containers": [{"image": "a"}]}), shared_memory=False)
    [problem] = find_problems(PodTemplate(pod_spec="x"), shared_memory=False)
    assert problem.endswith("pod_spec='x': must be a V1PodSpec or a dict of the same fields")


def test_upstream_function_changes_the_template_in_place() -> None:
    template, empty = pod(container()), PodTemplate()
    empty.pod_spec = None
    for each in (template, empty):
        add_shared_mem_volume_to_pod_template(each)
    expected = pod(container("primary", MOUNT), volumes=[VOLUME])
    assert template == expected
    assert empty == PodTemplate(pod_spec=expected.pod_spec)
