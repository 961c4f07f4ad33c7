"""Pods that the real API server sends in protobuf are equal to those in JSON."""

import pytest
from kubernetes_messages import BYTES, MAGIC, field
from rig.api import build_manifest, pods

from backend_plugin.core.object_readers import read_pod
from backend_plugin.kube import api_errors, protobuf_envelope
from backend_plugin.kube.api_resources import LABELLED
from backend_plugin.kube.pod_decoder import PodDecoder
from kfpytorch_idl.kubernetes import pods_pb2

NAMESPACE = "pods-protobuf"
NAME = "f1-n0-0-0123456789ab-worker-3"
AT, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"
ENDED = {"exitCode": 0, "reason": "Completed", "startedAt": AT, "finishedAt": LATER}
KILLED = {"exitCode": 137, "reason": "Error", "message": "Grüße", "startedAt": AT, "finishedAt": LATER}
ACCEPTED = {"Accept": protobuf_envelope.ACCEPT}
PARSER = PodDecoder()


def container(name, state, **fields):
    same = {"image": "train:1", "imageID": "train@1", "ready": False, "restartCount": 0}
    return {"name": name, "containerID": f"containerd://{name}", "state": state, **same, **fields}


STATUS = {
    "phase": "Running",
    "reason": "Evicted",
    "message": "low on memory",
    "startTime": AT,
    "conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": AT},
        {"type": "Ready", "status": "False", "reason": "NotReady", "lastTransitionTime": LATER},
        {"type": "DisruptionTarget", "status": "True", "reason": "r", "message": "m", "lastProbeTime": AT},
    ],
    "initContainerStatuses": [container("fetch", {"terminated": ENDED})],
    "containerStatuses": [
        container(
            "pytorch", {"running": {"startedAt": AT}}, lastState={"terminated": KILLED}, restartCount=2
        ),
        container("waits", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
        container("ended", {"terminated": {"exitCode": 1}}),
    ],
}


@pytest.fixture(scope="module")
def with_pod(bare):
    """A terminating pod with all fields of a status, and a pod without a status."""
    labels = {
        **dict.fromkeys(LABELLED.values(), "0123456789ab"),
        "training.kubeflow.org/job-name": "f1-n0-0-0123456789ab",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "3",
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "0-1"}
    meta = {"labels": labels, "finalizers": ["kfpytorch.flyte.org/test"], "ownerReferences": [owner]}
    spec = {
        "nodeName": "nowhere",
        "initContainers": [{"name": "fetch", "image": "train:1"}],
        "containers": [{"name": name, "image": "train:1"} for name in ("pytorch", "waits", "ended")],
    }
    bare.namespace(NAMESPACE)
    for name, metadata in ((NAME, meta), ("new", {"labels": labels})):
        bare.admin.create(build_manifest("v1", "Pod", name, NAMESPACE, spec=spec, **metadata))
    bare.admin.patch(f"{pods(NAMESPACE, NAME)}/status", {"status": STATUS})
    bare.admin.delete(pods(NAMESPACE, NAME))
    yield bare
    bare.admin.patch(pods(NAMESPACE, NAME), {"metadata": {"finalizers": None}})
    bare.admin.delete(pods(NAMESPACE, "new"))


def listed(plane):
    answer = plane.admin.request("GET", pods(NAMESPACE), headers=ACCEPTED)
    assert answer.headers["Content-Type"] == protobuf_envelope.MEDIA_TYPE
    return PARSER.decode_page(answer.content)


def watched(plane):
    query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "1", "allowWatchBookmarks": "true"}
    answer = plane.admin.request("GET", pods(NAMESPACE), params=query, headers=ACCEPTED)
    assert answer.headers["Content-Type"].partition(";")[0] == protobuf_envelope.MEDIA_TYPE
    parts = PARSER.splitter(1 << 24)
    changes = [PARSER.decode_event(part) for part in parts.feed(answer.content)]
    assert not parts.remainder
    return changes


def in_json(plane):
    return [read_pod(each) for each in plane.admin.items(pods(NAMESPACE))]


def test_pod_is_equal_in_json_and_protobuf(with_pod):
    items, wanted = [*listed(with_pod).items], in_json(with_pod)
    assert [item.record for item in items] == wanted
    assert [item.name for item in items] == [NAME, "new"]
    changes = {change.item.name: change for change in watched(with_pod)}
    assert [changes[pod.name].item for pod in wanted] == items
    assert {change.type for change in changes.values() if change.item.name} == {"ADDED"}
    pod = wanted[0]
    assert (pod.deleted, pod.disrupted, pod.init_containers[0].ended.exit_code) != (None, None, None)
    assert [bool(each.waiting) for each in pod.containers] == [False, True, False]


def test_invalid_utf8_text_is_equal_in_json_and_protobuf(with_pod):
    """A kubelet writes the end of a log in protobuf, and can cut it inside a character."""
    path = pods(NAMESPACE, "new")
    body = with_pod.admin.request("GET", path, headers=ACCEPTED).content
    pod = protobuf_envelope.decode_envelope(pods_pb2.WrappedPod, body, b"Pod").raw
    pod.status.message = b"gr\xc3\xbc\xe2\x82\xff"
    kind = field(1, BYTES, field(1, BYTES, b"v1") + field(2, BYTES, b"Pod"))
    with_pod.admin.request(
        "PUT",
        f"{path}/status",
        headers={"Content-Type": protobuf_envelope.MEDIA_TYPE},
        content=MAGIC + kind + field(2, BYTES, pod.SerializeToString()),
    ).raise_for_status()
    assert with_pod.admin.items(pods(NAMESPACE))[1]["status"]["message"] == "grü\ufffd\ufffd\ufffd"
    assert [item.record for item in listed(with_pod).items] == in_json(with_pod)


def test_missing_pod_error_is_decoded_from_protobuf(with_pod):
    answer = with_pod.admin.request("GET", pods(NAMESPACE, "nothing"), headers=ACCEPTED)
    assert answer.headers["Content-Type"] == protobuf_envelope.MEDIA_TYPE
    assert api_errors.parse_error_response(
        answer.status_code, answer.headers, answer.content
    ).is_missing_object("pods", "nothing")
