"""Measure the cost of Kubernetes watches on one core: changes of pods, and pages of lists.

``python benchmarks/scripts/watch_rate.py CHANGES``, with ``tests`` on PYTHONPATH

Prints JSON: processor milliseconds per change, from the bytes of the stream to the record that a sink
receives; seconds for a list of 10,000 jobs and 40,000 pods; resident memory before and after. The network
is not included. Pods have the size that is usual in clusters, 8 kB, and are encoded as protobuf.
"""

import json
import random
import sys
import time
from collections.abc import Iterable
from typing import Any

import kubernetes_messages as messages
import psutil

from backend_plugin.core.observed import Job, Pod
from backend_plugin.kube import json_decoder
from backend_plugin.kube.api_resources import KINDS
from backend_plugin.kube.decoder import WatchedObject
from backend_plugin.kube.pod_decoder import PodDecoder
from backend_plugin.kube.watch_merge import MergedKind
from backend_plugin.shell.cluster import ObjectName, Record
from benchmarks.scripts.judge_rate import build_pod, format_time

JOBS, PODS_PER_JOB, PAGE = 10_000, 4, 500
CHUNK = 1 << 16
_TAIL = "-n0-0-0123456789ab"


class Nowhere:
    """A sink that keeps all records, as that of the server does."""

    def __init__(self) -> None:
        self.there: dict[tuple[type[Record], str], Record] = {}

    def replace_records(self, kind: type[Record], records: Iterable[tuple[str, Record]]) -> None:
        """See `Sink.replace_records`."""
        self.there |= {(kind, record.name): record for _, record in records}

    def put_record(self, _: str, record: Record) -> None:
        """See `Sink.put_record`."""
        self.there[type(record), record.name] = record

    def drop_record(self, kind: type[Record], name: ObjectName) -> None:
        """See `Sink.drop_record`."""
        self.there.pop((kind, name.name), None)


def build_full_pod(number: int, phase: str) -> dict[str, Any]:
    """Return a pod as an API server sends it, mostly with fields that are not read."""
    job, index = divmod(number, PODS_PER_JOB)
    # The pods of a job start together.
    manifest = build_pod(f"f{job}{_TAIL}", ("worker", index), phase, job % 5_000)
    env = [{"name": f"VARIABLE_{each}", "value": f"some value of the variable {each}"} for each in range(40)]
    fields: dict[str, Any] = {f"f:field-{each}": {".": {}, "f:sub": {}, "f:other": {}} for each in range(40)}
    meta = {
        "namespace": "project-development",
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "resourceVersion": str(1_000_000 + number),
        "annotations": {f"annotation/{each}": "x" * 40 for each in range(6)},
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "u"}],
        "managedFields": [{"manager": each, "fieldsV1": fields} for each in ("operator", "kubelet")],
    }
    containers = [{"name": "pytorch", "image": "train:1", "env": env, "resources": {"limits": {"cpu": "4"}}}]
    return {
        **manifest,
        "metadata": {**manifest["metadata"], **meta},
        "spec": {**manifest["spec"], "containers": containers, "tolerations": [{"key": "gpu"}] * 4},
    }


def build_job(number: int) -> dict[str, Any]:
    """Return a job with a pod template for each replica role."""
    template = {"spec": build_full_pod(number, "Running")["spec"]}
    return {
        "metadata": {
            "name": f"f{number}{_TAIL}",
            "namespace": "project-development",
            "uid": f"job-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": format_time(number),
            "annotations": {"kfpytorch.flyte.org/output-prefix": f"s3://bucket/metadata/f{number}/n0/data/0"},
        },
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "Never", "template": template},
                "Worker": {"replicas": 3, "restartPolicy": "Never", "template": template},
            }
        },
        "status": {
            "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": format_time(number)}]
        },
    }


def create_parser(record: type[Record]) -> json_decoder.JsonDecoder | PodDecoder:
    kind = next(kind for kind in KINDS if kind.record is record)
    return kind.protobuf or json_decoder.JsonDecoder(kind.wire, kind.read)


def encode_page(record: type[Record], items: list[Any]) -> bytes:
    page = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
    return messages.wrapped("PodList", page) if record is Pod else json.dumps(page).encode()


def measure_changes(total: int) -> float:
    """Return the processor milliseconds per change of a pod."""
    part, parser = MergedKind(Nowhere(), Pod).add_part(), create_parser(Pod)
    parts = parser.splitter(1 << 24)
    part.replace_records(())
    spent = 0.0
    for first in range(0, total, 1_000):
        changes = [
            messages.frame(
                "MODIFIED", "Pod", build_full_pod(number, random.choice(("Pending", "Running", "Succeeded")))
            )
            for number in range(first, min(total, first + 1_000))
        ]
        stream = b"".join(changes)
        began = time.process_time()
        for at in range(0, len(stream), CHUNK):
            for change in parts.feed(stream[at : at + CHUNK]):
                part.apply_change(parser.decode_event(change).item)
        spent += time.process_time() - began
    return 1_000 * spent / total


def measure_lists() -> tuple[float, int]:
    """Return the processor seconds for lists of all jobs and pods, and the bytes of the lists."""
    spent, size, sink = 0.0, 0, Nowhere()
    for record, make, total in (
        (Job, build_job, JOBS),
        (Pod, lambda n: build_full_pod(n, "Running"), JOBS * PODS_PER_JOB),
    ):
        parser, found = create_parser(record), list[WatchedObject]()
        for first in range(0, total, PAGE):
            items = [make(number) for number in range(first, first + PAGE)]
            body = encode_page(record, items)
            size += len(body)
            began = time.process_time()
            found += parser.decode_page(body).items
            spent += time.process_time() - began
        began = time.process_time()
        MergedKind(sink, record).add_part().replace_records(found)
        spent += time.process_time() - began
    return spent, size


if __name__ == "__main__":
    before = psutil.Process().memory_info().rss / 2**20
    per_change = measure_changes(int(sys.argv[1]))
    seconds, size = measure_lists()
    results = {
        "ms_per_change": round(per_change, 4),
        "list_seconds": round(seconds, 2),
        "list_mb": round(size / 1e6),
        "resident_mb": [round(before), round(psutil.Process().memory_info().rss / 2**20)],
    }
    print(json.dumps(results))
