"""The launch file of a pod: image, environment, order and time limits."""

import json

import pytest
from bound_pods import MACHINE, PATHS, container, launched, only, replica

from backend_plugin.embedded.options import EmbeddedOptions, RestartBackoff, select_inherited_variables
from backend_plugin.embedded.pod_launch import build_launch


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
    [
        ("Always", "OnFailure", "Always"),
        ("OnFailure", "OnFailure", "OnFailure"),
        ("Never", "Never", "Never"),
        ("", "OnFailure", "Always"),
    ],
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
def test_launch_file_is_json_with_the_defaults_of_the_kubelet(fields, grace, deadline):
    options = EmbeddedOptions(back_off=RestartBackoff(first=1, most=2, forget=3))
    made = build_launch(replica(containers=[container("true")], **fields), *PATHS, options, MACHINE)
    assert json.loads(json.dumps(made)) == made
    assert [made[key] for key in ("pod", "grace", "deadline")] == ["j-worker-1_a(u)", grace, deadline]
    assert made["back_off"] == [1, 2, 3]
