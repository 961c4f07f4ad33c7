"""Pod objects after each transition."""

import pytest
from kept_objects import AT_ONCE, BEGAN, container, pod

from backend_plugin.core.object_readers import read_pod
from backend_plugin.embedded import pod_transitions
from backend_plugin.embedded.scheduling_cycle import GPU_INDICES, Binding, Unschedulable

READY = {"type": "Ready", "status": "True", "lastTransitionTime": AT_ONCE}


def bound(**binding):
    return pod_transitions.bind(pod("p", container()), Binding(uid="u", node="node-1", **binding), BEGAN)


def types(manifest):
    return [each["type"] for each in manifest["status"]["conditions"]]


def test_a_bound_pod_has_its_node_and_says_so():
    seen = read_pod(bound())
    assert (seen.node, seen.scheduled.true, seen.scheduled.since) == ("node-1", True, BEGAN)
    assert "annotations" not in bound()["metadata"]


def test_a_pod_that_waited_is_bound_in_the_end():
    why = Unschedulable(uid="u", reason="Unschedulable", message="0/2 nodes are available")
    waits = pod_transitions.mark_unschedulable(pod(), why, BEGAN)
    scheduled = read_pod(waits).scheduled
    assert (scheduled.true, scheduled.reason, scheduled.message) == (False, why.reason, why.message)
    assert read_pod(pod_transitions.bind(waits, Binding(uid="u", node="n"), BEGAN)).scheduled.true


def test_what_the_kubelet_reports_leaves_what_others_said():
    evicted = pod_transitions.mark_evicted(bound(), BEGAN)
    told = pod_transitions.merge_status(evicted, {"phase": "Running", "conditions": [READY]})
    assert sorted(types(told)) == ["DisruptionTarget", "PodScheduled", "Ready"]
    unready = {**READY, "status": "False"}
    later = pod_transitions.merge_status(told, {"phase": "Failed", "conditions": [unready]})
    assert read_pod(later).phase == "Failed"
    assert sorted(types(later)) == ["DisruptionTarget", "PodScheduled", "Ready"]
    assert read_pod(later).disrupted.reason == "EvictionByEvictionAPI"


@pytest.mark.parametrize(("said", "grace"), [({}, 30), ({"terminationGracePeriodSeconds": 5}, 5)])
def test_a_pod_has_its_own_grace(said, grace):
    ending = pod_transitions.mark_terminating({**pod(), "spec": said}, BEGAN)
    assert ending["metadata"]["deletionGracePeriodSeconds"] == grace
    assert read_pod(ending).deleted == BEGAN


def test_a_lost_pod_has_failed_and_says_whose_fault_it_is():
    lost = read_pod(pod_transitions.mark_node_lost(bound(), BEGAN))
    assert (lost.phase, lost.reason) == ("Failed", "NodeLost")
    assert lost.message == "Node node-1 which was running pod p is unresponsive"
    assert lost.disrupted.reason == "DeletionByTaintManager"


def test_containers_see_the_gpus_that_they_asked_for():
    asked = pod("p", container("pytorch", **{"nvidia.com/gpu": "2"}), container("sidecar"))
    given = pod_transitions.bind(asked, Binding(uid="u", node="n", gpus=(1, 3)), BEGAN)
    assert given["metadata"]["annotations"] == {GPU_INDICES: "1,3"}
    assert [each["env"] for each in pod_transitions.with_visible_gpus(given)["spec"]["containers"]] == [
        [{"name": "CUDA_VISIBLE_DEVICES", "value": "1,3"}],
        [{"name": "CUDA_VISIBLE_DEVICES", "value": ""}],
    ]


def test_on_a_node_without_gpus_nothing_is_said_of_them():
    assert pod_transitions.with_visible_gpus(bound()) == bound()
