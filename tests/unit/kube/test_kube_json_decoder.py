"""An object that is read from its bytes equals the same object read by the core."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_mutations import mutate

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.object_readers import read_event
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.kube import json_decoder
from backend_plugin.kube.api_resources import KINDS
from backend_plugin.kube.decoder import MalformedResponse
from backend_plugin.kube.json_decoder import JsonDecoder

OURS = "f1-n0-0-0123456789ab"
NESTED = b'{"type": "ADDED", "items": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
AT = "2026-01-01T00:00:00Z"
ODD = (
    *(None, True, 3, -1, 2**40, 1.5, "", "x", "3", "Grüße", "x" * 5_000, "never", "2026-01-01T00:00:01.5Z"),
    *([], ["x"], {}, {"a": 1}),
)
META = {
    "name": "j",
    "namespace": "ns",
    "uid": "u",
    "resourceVersion": "7",
    "managedFields": [{"manager": "m"}],
    "creationTimestamp": AT,
    "deletionTimestamp": AT,
    "deletionGracePeriodSeconds": 30,
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "ownerReferences": [{"uid": "u", "kind": "FlyteWorkflow", "name": "f1"}] * 2,
}
CONDITION = {"type": "Running", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": AT}
ROLE = {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {}}}
JOB = {
    "metadata": META,
    "spec": {
        "pytorchReplicaSpecs": {"Master": ROLE, "Worker": ROLE},
        "runPolicy": {"cleanPodPolicy": "All", "activeDeadlineSeconds": 7, "suspend": True},
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "nProcPerNode": 3},
        "nprocPerNode": "2",
    },
    "status": {
        "conditions": [CONDITION, {**CONDITION, "status": "False"}],
        "startTime": AT,
        "completionTime": AT,
    },
}
EVENT = {
    "metadata": META,
    "reason": "r",
    "message": "m",
    "type": "Warning",
    "involvedObject": {"kind": "Pod", "name": f"{OURS}-worker-3", "uid": "u"},
    "lastTimestamp": AT,
    "eventTime": AT,
    "series": {"lastObservedTime": AT},
}


def find_kind(record):
    return next(kind for kind in KINDS if kind.record is record)


POD_DECODER = JsonDecoder(find_kind(Pod).wire, find_kind(Pod).read)


def a_list(**fields):
    page = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [], **fields}
    return json.dumps(page).encode()


def parsed(record, manifest):
    kind = find_kind(record)
    parser = JsonDecoder(kind.wire, kind.read)
    listed = parser.decode_page(a_list(items=[manifest]))
    changed = parser.decode_event(json.dumps({"type": "ADDED", "object": manifest}).encode())
    assert (listed.version, listed.rest, changed.type) == ("1", "", "ADDED")
    assert [*listed.items] == [changed.item]
    return changed.item.record


def check_decoded(record, read, manifest):
    """Check that the decoded record is that of the core, which is None here for an object without a name."""
    expected = read(manifest)
    assert parsed(record, manifest) == (expected if expected.name else None)


@pytest.mark.parametrize(
    "manifest",
    [
        JOB,
        {"metadata": {"ownerReferences": [{"name": "f1"}]}},
        {"metadata": {}, "spec": {"elasticPolicy": {"rdzvBackend": "c10d"}}},
        {"metadata": {}, "spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}},
    ],
)
def test_decoded_job_equals_that_of_the_core(manifest):
    check_decoded(Job, read_job, manifest)


@pytest.mark.parametrize(("record", "read", "manifest"), [(Job, read_job, JOB), (Event, read_event, EVENT)])
@given(dice=st.randoms(use_true_random=True))
def test_object_with_odd_values_is_decoded_as_by_the_core(record, read, manifest, dice):
    for _ in range(20):
        changed = deepcopy(manifest)
        for _ in range(dice.randint(1, 5)):
            mutate(changed, dice, ODD)
        check_decoded(record, read, {**changed, "involvedObject": EVENT["involvedObject"]})


@pytest.mark.parametrize(
    ("kind", "plural"), [("PodGroup", "podgroups"), ("Workload", "workloads")], ids=["group", "workload"]
)
def test_pod_group_is_named_after_its_job(kind, plural):
    meta = {"name": "pg-1", "namespace": "n", "ownerReferences": [{"kind": "PyTorchJob", "name": OURS}]}
    row = next(each for each in KINDS if each.resource.plural == plural)
    found = row.read({"kind": kind, "metadata": meta, "status": {"phase": "Pending"}})
    assert found == PodGroup(kind=kind, name=OURS, object_name="pg-1", namespace="n", phase="Pending")
    taken = row.read({"kind": kind, "metadata": {"name": OURS}})
    assert taken == PodGroup(kind=kind, name=OURS, foreign=True)
    assert kind == "Workload" or row.read({"kind": kind, "metadata": {"name": "pg-1"}}) is None


@pytest.mark.parametrize(("reserved", "queue"), [("True", ""), ("False", "team")])
def test_foreign_workload_is_kept_only_with_its_queue(reserved, queue):
    row = next(each for each in KINDS if each.resource.plural == "workloads")
    theirs = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "job-x-1", "uid": "u"},
        "spec": {"queueName": "team", "priority": 7},
        "status": {"conditions": [{"type": "QuotaReserved", "status": reserved, "message": "long"}]},
    }
    about = {"kind": "Workload", "api": "kueue.x-k8s.io", "version": "v1beta2", "name": "job-x-1", "uid": "u"}
    assert row.read(theirs) == PodGroup(**about, priority=7, queue=queue, foreign=True)


@pytest.mark.parametrize("name", ["web-0", "f1-n0-0-0123456789ab-web-0", "f1-n0-0-0123456789a", ""])
def test_event_of_an_unrelated_object_is_dropped(name):
    theirs = {"involvedObject": {"kind": "Pod", "name": name}, "reason": "Killing"}
    assert find_kind(Event).read(theirs) is None


@pytest.mark.parametrize("record", [Job, Pod, Event, PodGroup])
def test_truncated_list_is_malformed_at_each_length(record):
    kind, items = find_kind(record), [{"metadata": {"name": OURS}, "status": {"phase": "Running"}}] * 2
    parser, body = JsonDecoder(kind.wire, kind.read), a_list(items=items)
    assert len([*parser.decode_page(body).items]) == len(items)
    for size in range(len(body)):
        with pytest.raises(MalformedResponse):
            parser.decode_page(body[:size])


@pytest.mark.parametrize(
    "otherwise",
    [
        *({"kind": "Status", "status": "Success"}, {"kind": None}, {"kind": "Pod"}),
        *({"metadata": {}}, {"metadata": {"resourceVersion": 7}}, {"metadata": None}),
        *({"items": {}}, {"items": "none"}, {"items": [7]}),
    ],
    ids=str,
)
def test_incomplete_list_is_malformed_and_an_empty_one_is_not(otherwise):
    with pytest.raises(MalformedResponse):
        POD_DECODER.decode_page(a_list(**otherwise))
    for items in ([], None):
        page = POD_DECODER.decode_page(a_list(items=items))
        assert ([*page.items], page.version, page.rest) == ([], "1", "")


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"<html>", b"[" * 100_000, NESTED, b"\xff", b'{"kind": "\xff"}']
)
def test_body_that_is_no_object_is_malformed(line):
    for parse in (POD_DECODER.decode_event, POD_DECODER.decode_page, json_decoder.decode_object):
        with pytest.raises(MalformedResponse):
            parse(line)


def test_json_without_an_object_is_not_reported_as_invalid_json():
    with pytest.raises(MalformedResponse, match=r"^not a JSON object .*: b'\[1\]'$"):
        json_decoder.decode_object(b"[1]")
