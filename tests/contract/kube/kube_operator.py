"""The operator, the scheduler and the nodes of the only PyTorchJob of a fake API server."""

from typing import Any

from kube_server import KubeServer
from kube_world import JOBS, PODS, build_replica
from scripted_cluster import ago
from serving import NAMESPACE, Served, is_phase, wait_until

UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
}


class Playing:
    """Simulates all of them."""

    def __init__(self, server: KubeServer) -> None:
        self._server = server
        (self.job,) = server.list_objects("pytorchjobs")
        self.name = self.job["metadata"]["name"]

    def becomes(self, kind: str, since: float = 0.0, **metadata: Any) -> None:
        """Set a condition of the job as the operator does, and these fields of its metadata."""
        condition = {"type": kind, "status": "True", "lastTransitionTime": ago(since)}
        status = {"startTime": ago(60), "conditions": [{**condition, "reason": f"PyTorchJob{kind}"}]}
        metadata = {**self.job["metadata"], **metadata}
        self._server.apply(JOBS, {**self.job, "metadata": metadata, "status": status})

    def runs(self) -> None:
        self.becomes("Running", 30)
        for replica in ("master-0", "worker-0"):
            self.pod(replica, created=90)

    def pod(self, replica: str, created: float = 90.0, phase: str = "Running", **status: Any) -> None:
        """Write the pod of a replica; only a pending one has no node."""
        node = {} if phase == "Pending" else {"nodeName": "n"}
        metadata = build_replica(self.job, replica, creationTimestamp=ago(created))
        spec = {"containers": [{"name": "pytorch"}], **node}
        self._server.apply(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}})

    def waits(self, created: float) -> None:
        """Write a worker that does not fit any node."""
        self.pod("worker-0", created, "Pending", conditions=[UNPLACED])

    def loses(self) -> None:
        """Replace a worker by one that does not fit any node."""
        self._server.remove(PODS, f"{self.name}-worker-0", NAMESPACE)
        self.waits(created=10)


async def create_running_job(server: KubeServer, here: Served) -> tuple[Playing, bytes]:
    meta = await here.create()
    play = Playing(server)
    play.runs()
    await wait_until(lambda: is_phase(here, meta, "RUNNING"))
    await wait_until(lambda: all(len(entry.pods) == 2 for entry in here.cache))
    return play, meta
