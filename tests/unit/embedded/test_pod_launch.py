"""The launch file of a pod: image, environment, order, time limits, and volumes."""

import json

import pytest
from bound_pods import MACHINE, PATHS, container, launched, only, replica

from backend_plugin.embedded.options import EmbeddedOptions, RestartBackoff, select_inherited_variables
from backend_plugin.embedded.pod_launch import build_launch
from backend_plugin.embedded.pod_volumes import MountPaths

DATA = {"name": "data", "emptyDir": {}}
AT = {"name": "data", "mountPath": "/data"}
HERE = "/pods/u/volumes/data"
FAILED = 'MountVolume.SetUp failed for volume "v" : '
NO_HOST_PATH = "hostPath is not allowed: a manifest must not give a task access to files of this machine"


def test_container_environment_is_small_and_complete():
    assert only(container("true"))["env"] == {
        "HOME": "/home/me",
        "TMPDIR": "/tmp/u",
        "HOSTNAME": "j-worker-1",
        "FLYTE_KFPYTORCH_LOOPBACK_ONLY": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
        "PATH": "/server/bin:/bin",
        "PYTHONPATH": "/code",
        "KFPYTORCH_POD": "u/pytorch",
    }


def test_server_environment_is_inherited_only_by_pattern():
    own = {"HOME": "/h", "LC_ALL": "C", "PATH": "/bin"}
    more = {"NCCL_DEBUG": "INFO", "A": "1"}
    servers = {**own, **more, "AWS_SECRET": "no"}
    assert select_inherited_variables(servers, []) == own
    assert select_inherited_variables(servers, ["NCCL_*", "A"]) == {**own, **more}


def test_manifest_variables_take_precedence_except_search_paths():
    kept = {"HOME": "/root", "TMPDIR": "/scratch", "GLOO_SOCKET_IFNAME": "eth0"}
    variables = {**kept, "PATH": "/opt/bin", "PYTHONPATH": "/x", "KFPYTORCH_POD": "another"}
    env = only(container("true", env=variables))["env"]
    assert {name: env[name] for name in variables} == {
        **kept,
        "PATH": "/server/bin:/opt/bin",
        "PYTHONPATH": "/x:/code",
        "KFPYTORCH_POD": "u/pytorch",
    }


def test_image_selects_a_virtual_environment():
    images = {"train:*": "/venvs/train", "ghcr.io/*": "."}
    for image, prefix in (("train:1", "/venvs/train"), ("ghcr.io/a/b:1", "/server"), ("other", "/server")):
        assert only(container("true", image=image), images=images)["env"]["PATH"] == f"{prefix}/bin:/bin"


def test_unknown_image_cannot_be_pulled_if_images_are_strict():
    reason, message = only(container("true"), images={"other:*": "."}, strict_images=True)["blocked"]
    assert (reason, message.partition(": ")[0]) == ("ImagePullBackOff", 'Back-off pulling image "train:1"')


@pytest.mark.parametrize(
    ("policy", "first", "main"),
    [("Always", "OnFailure", "Always"), ("OnFailure", "OnFailure", "OnFailure"), ("Never", "Never", "Never")],
)
def test_restart_policy_depends_on_the_kind_of_container(policy, first, main):
    sidecar = container("true", name="sidecar", restartPolicy="Always")
    before = [container("true", name="first"), sidecar]
    found = launched(replica(restartPolicy=policy, initContainers=before, containers=[container("true")]))
    assert [(each["name"], each["kind"], each["policy"]) for each in found] == [
        ("first", "init", first),
        ("sidecar", "sidecar", "Always"),
        ("pytorch", "app", main),
    ]


@pytest.mark.parametrize(
    ("fields", "grace", "deadline"),
    [({}, 30, None), ({"terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 5}, 0, 5)],
)
def test_launch_file_is_json_with_the_times_of_the_pod(fields, grace, deadline):
    options = EmbeddedOptions(back_off=RestartBackoff(first=1, most=2, forget=3))
    made = build_launch(replica(containers=[container("true")], **fields), *PATHS, options, MACHINE)
    assert json.loads(json.dumps(made)) == made
    assert [made[key] for key in ("pod", "grace", "deadline")] == ["j-worker-1_a(u)", grace, deadline]
    assert made["back_off"] == [1, 2, 3]


def mounted(*args, mounts=(AT,), **fields):
    return only(container(*args or ("true",), volumeMounts=list(mounts), **fields), replica(volumes=[DATA]))


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/data", HERE),
        ("/data/", f"{HERE}/"),
        ("/data/x.txt", f"{HERE}/x.txt"),
        ("--out=/data/x", f"--out={HERE}/x"),
        ("/a:/data:/b", f"/a:{HERE}:/b"),
        ("cp /data/x '/data/y'", f"cp {HERE}/x '{HERE}/y'"),
        ("echo hi >/data/x; ls /data.", f"echo hi >{HERE}/x; ls {HERE}."),
        ("file:///data/x", f"file://{HERE}/x"),
        # Other directories, and text that is not a path.
        ("/database", "/database"),
        ("/data-2", "/data-2"),
        ("/data.old", "/data.old"),
        ("./data", "./data"),
        ("s3://bucket/data", "s3://bucket/data"),
        ("s3://data/x", "s3://data/x"),
    ],
)
def test_paths_below_a_mount_are_rewritten_to_its_directory(text, rewritten):
    found = mounted(text, env={"A": text})
    assert (found["argv"], found["env"]["A"]) == ([rewritten], rewritten)


def test_longer_of_two_mounts_counts():
    paths = MountPaths.from_directories({"/a": "/1", "/a/b": "/2"})
    assert paths.rewrite("/a/c /a/b/c /a/bc") == "/1/c /2/c /1/bc"


@pytest.mark.parametrize(
    ("mount", "argument", "rewritten"),
    [
        ({"subPath": "run/1"}, "/data/x", f"{HERE}/run/1/x"),
        ({"mountPath": "/./data//"}, "/data/x", f"{HERE}/x"),
        # Shared memory is that of the machine.
        ({"mountPath": "/dev/shm"}, "/dev/shm/x", "/dev/shm/x"),
    ],
)
def test_mount_may_have_a_subpath_and_any_path(mount, argument, rewritten):
    found = mounted(argument, mounts=[{**AT, **mount}])
    assert found["argv"] == [rewritten]
    if "subPath" in mount:
        assert found["directories"] == [f"{HERE}/run/1"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc"])
def test_subpath_outside_the_volume_is_rejected(path):
    reason, message = mounted(mounts=[{**AT, "subPath": path}])["blocked"]
    assert reason == "CreateContainerConfigError"
    assert path in message


def test_each_volume_is_a_directory_of_the_pod():
    memory = {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    absent = {"name": "c", "configMap": {"name": "c", "optional": True}}
    several = {"name": "p", "projected": {"sources": [{"secret": {"name": "s", "optional": True}}]}}
    made = build_launch(replica(volumes=[DATA, memory, absent, several]), *PATHS, EmbeddedOptions(), MACHINE)
    found = [each for each in made["directories"] if "/volumes/" in each]
    assert found == [HERE, *(f"/pods/u/volumes/{name}" for name in "mcp")]


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "c"}}, f'{FAILED}configmap "c" not found'),
        ({"secret": {"secretName": "s"}}, f'{FAILED}secret "s" not found'),
        ({"projected": {"sources": [{"secret": {"name": "s"}}]}}, f'{FAILED}secret "s" not found'),
        ({"persistentVolumeClaim": {"claimName": "p"}}, 'persistentvolumeclaim "p" not found'),
        ({"hostPath": {"path": "/"}}, FAILED + NO_HOST_PATH),
        ({"nfs": {"server": "s"}}, FAILED + "an embedded cluster does not support volumes of the kind nfs"),
    ],
)
def test_volume_that_cannot_be_mounted_blocks_the_pod(volume, message):
    pod = replica(volumes=[{"name": "v", **volume}], containers=[container("true")])
    assert launched(pod)[0]["blocked"] == ["CreateContainerConfigError", message]


@pytest.mark.parametrize(
    ("asked", "found", "created"),
    [
        ("/data/x", f"{HERE}/x", [f"{HERE}/x"]),
        ("/code/src", "/code/src", []),
        ("/codes", None, []),
        ("/code/../etc", None, []),
        ("", None, []),
    ],
)
def test_working_directory_is_created_below_a_mount_or_part_of_the_code(asked, found, created):
    launch = mounted(workingDir=asked)
    assert (launch["cwd"], launch["directories"]) == (found, [HERE, *created])
