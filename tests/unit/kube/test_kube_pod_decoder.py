"""A pod that is read from protobuf equals the same pod read from JSON by the core."""

import contextlib
import json
from datetime import datetime, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes_messages import BYTES, MAGIC, field, frame, varint, wrapped

from backend_plugin.core.object_readers import read_pod
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.decoder import MalformedResponse, WatchedObject
from backend_plugin.kube.pod_decoder import PodDecoder
from kfpytorch_idl.kubernetes import pods_pb2

DAYS = ("1970-01-01T00:00:00", "1969-12-31T23:59:59", "2026-01-01T00:00:00")
MOMENTS = st.sampled_from(
    [None, *(f"{day}Z" for day in (*DAYS, "0001-01-01T00:00:01", "9999-12-31T23:59:59"))]
)
WORDS = st.sampled_from(["", "True", "False", "Running", "x" * 5_000, "Grüße", "\udce2\udc82", "\0"])
INT32 = st.sampled_from([0, 1, 137, -9, 2**31 - 1, -(2**31)])
BROKEN = [
    *(b"", b"<html>", b'{"type": "ADDED"}', MAGIC, MAGIC + b"\xff" * 9),
    wrapped("Pod", {"metadata": {"name": "p"}, "status": {"phase": "Running"}})[:-1],
    wrapped("Status", {"code": 403}),
]


def an_object(**fields):
    return st.fixed_dictionaries({}, optional=fields)


def texts(*names):
    return dict.fromkeys(names, WORDS)


def times(*names):
    return dict.fromkeys(names, MOMENTS)


CONDITIONS = st.lists(
    an_object(
        type=st.sampled_from(["PodScheduled", "Ready", "DisruptionTarget", "Initialized", ""]),
        lastProbeTime=st.none(),
        **texts("status", "reason", "message"),
        **times("lastTransitionTime"),
    ),
    max_size=4,
)
STATE = an_object(
    running=an_object(**times("startedAt")),
    waiting=an_object(**texts("reason", "message")),
    terminated=an_object(
        exitCode=INT32, signal=INT32, **texts("reason", "message"), **times("startedAt", "finishedAt")
    ),
)
CONTAINERS = st.lists(
    an_object(
        name=st.sampled_from(["pytorch", "sidecar"]),
        restartCount=INT32,
        state=STATE,
        lastState=STATE,
        **texts("image", "imageID", "containerID"),
    ),
    max_size=2,
)
INDICES = st.sampled_from(["0", "7", "-1", "x", ""])
LABELS = an_object(
    **texts("other", "training.kubeflow.org/job-name"),
    **{
        "training.kubeflow.org/replica-type": st.sampled_from(["Master", "worker"]),
        "training.kubeflow.org/replica-index": INDICES,
    },
)
TRAIN_JOB_LABELS = an_object(
    **texts("jobset.sigs.k8s.io/jobset-name"),
    **{
        "jobset.sigs.k8s.io/replicatedjob-name": st.sampled_from(["node", "launcher", "dataset-initializer"]),
        "batch.kubernetes.io/job-completion-index": INDICES,
        "jobset.sigs.k8s.io/restart-attempt": INDICES,
        "kfpytorch.flyte.org/first-index": INDICES,
    },
)
META = st.fixed_dictionaries(
    {"name": st.sampled_from(["p", "f1-n0-0-master-0"])},
    optional={
        **texts("namespace", "uid"),
        **times("creationTimestamp", "deletionTimestamp"),
        "resourceVersion": st.just("7"),
        "deletionGracePeriodSeconds": st.sampled_from([0, 30, -1, 2**31, 2**62]),
        "labels": st.one_of(LABELS, TRAIN_JOB_LABELS),
        "annotations": st.just({"a": "b"}),
        "managedFields": st.just([{"manager": "m"}]),
        "ownerReferences": st.lists(an_object(**texts("uid", "kind", "name")), max_size=2),
    },
)
STATUS = an_object(
    conditions=CONDITIONS,
    containerStatuses=CONTAINERS,
    initContainerStatuses=CONTAINERS,
    **texts("phase", "reason", "message", "podIP"),
    **times("startTime"),
)
SPEC = an_object(containers=st.just([{"name": "c"}]), **texts("nodeName", "hostname"))
PODS = st.fixed_dictionaries({"metadata": META}, optional={"spec": SPEC, "status": STATUS})
OF_JOBSET = {"jobset.sigs.k8s.io/jobset-name": "j"}
BOTH = {"waiting": {"reason": "x"}, "terminated": {"exitCode": 0, "startedAt": None}}
PARSER = PodDecoder()
VERSION = {"resourceVersion": "7"}


def in_json(manifest):
    """Return the object as an API server sends it in JSON, with replacement characters for invalid UTF-8."""
    text = json.dumps(manifest, ensure_ascii=False)
    return json.loads("".join("\N{REPLACEMENT CHARACTER}" if "\udc80" <= c <= "\udcff" else c for c in text))


def decode_list(manifest):
    (listed,) = PARSER.decode_page(wrapped("PodList", {"metadata": VERSION, "items": [manifest]})).items
    changed = PARSER.decode_event(frame("ADDED", "Pod", manifest)[4:])
    assert (changed.type, changed.item) == ("ADDED", listed)
    return listed


@given(PODS)
@example({"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": BOTH, "lastState": {}}]}})
@example({"metadata": {"name": "p", "deletionTimestamp": "1970-01-01T00:00:00Z"}})
@example(
    {"metadata": {"name": "p", "labels": {**OF_JOBSET, "jobset.sigs.k8s.io/replicatedjob-name": "launcher"}}}
)
@example({"metadata": {"name": "p", "labels": {**OF_JOBSET, "kfpytorch.flyte.org/first-index": "1"}}})
def test_decoded_pod_equals_that_of_the_core(manifest):
    plain = in_json(manifest)
    meta = plain["metadata"]
    identity = [meta.get(key, "") for key in ("namespace", "name", "uid", "resourceVersion")]
    assert decode_list(manifest) == WatchedObject(*identity, read_pod(plain))


def test_out_of_range_time_is_ignored():
    for seconds in (2**62, -(2**62), 253_402_300_800):
        assert created(pods_pb2.Time(seconds=seconds).SerializeToString()) is None
    with pytest.raises(MalformedResponse):
        created(b"\xff")


def created(at):
    pod = pods_pb2.Pod(metadata=pods_pb2.ObjectMeta(name=b"p", creation_timestamp=at))
    items = pods_pb2.PodList(metadata={"resource_version": b"7"}, items=[pod]).SerializeToString()
    # The list is the last field of its envelope. It is empty, so the last byte is its length.
    (item,) = PARSER.decode_page(wrapped("PodList", {})[:-1] + varint(len(items)) + items).items
    return item.record.created


@pytest.mark.parametrize("more", [{}, {"continue": "x"}], ids=["last", "more"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_truncated_list_is_malformed_and_not_shorter(count, more):
    items = [{"metadata": {"name": f"p{number}"}, "status": {"phase": "Running"}} for number in range(count)]
    # Encoding and media type follow the list. An API server leaves both empty.
    unsaid = field(3, BYTES, b"") + field(4, BYTES, b"")
    body = wrapped("PodList", {"metadata": {**VERSION, **more}, "items": items}) + unsaid
    whole, read = listed(body), {}
    for size in range(len(body)):
        with contextlib.suppress(MalformedResponse):
            read[size] = listed(body[:size])
    assert (len(whole[0]), *whole[1:]) == (count, "7", more.get("continue", ""))
    assert read == {len(body) - len(unsaid): whole, len(body) - len(unsaid) // 2: whole}


def listed(body):
    page = PARSER.decode_page(body)
    return [*page.items], page.version, page.rest


@pytest.mark.parametrize("metadata", [{}, {"continue": "x"}, {"resourceVersion": ""}])
def test_list_without_a_version_is_malformed(metadata):
    with pytest.raises(MalformedResponse):
        PARSER.decode_page(wrapped("PodList", {"metadata": metadata, "items": []}))


def test_bookmark_has_only_a_version():
    mark = {"metadata": {"resourceVersion": "9", "creationTimestamp": None}}
    change = PARSER.decode_event(frame("BOOKMARK", "Pod", mark)[4:])
    assert change == ("BOOKMARK", WatchedObject("", "", "", "9", None))


def test_equal_parts_of_pods_are_shared():
    status = {
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "reason": "r"}],
        "containerStatuses": [{"name": "c", "image": "i", "state": {"terminated": {"exitCode": 0}}}],
    }
    one, other = (decode_list({"metadata": {"name": name}, "status": status}).record for name in ("a", "b"))
    assert one.started == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert one.started is other.started
    assert one.ready is other.ready
    assert one.containers[0].image is other.containers[0].image
    assert one.containers[0].ended is other.containers[0].ended


@pytest.mark.parametrize("payload", BROKEN)
def test_body_that_is_no_pod_is_malformed(payload):
    event = field(1, BYTES, b"ADDED") + field(2, BYTES, field(1, BYTES, payload))
    parses = (PARSER.decode_page, payload), (PARSER.decode_event, payload), (PARSER.decode_event, event)
    for parse, body in parses:
        with pytest.raises(MalformedResponse):
            parse(body)


def test_watch_error_is_raised_as_an_api_error():
    status = {"reason": "Expired", "message": "too old", "code": 410, "details": {"retryAfterSeconds": 3}}
    with pytest.raises(ApiError) as raised:
        PARSER.decode_event(frame("ERROR", "Status", status)[4:])
    answer = raised.value
    assert (answer.code, answer.reason, answer.message, answer.genuine) == (410, "Expired", "too old", True)
