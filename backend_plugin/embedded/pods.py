"""The lifecycle of pod objects: creation, binding, start, termination and removal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime

from backend_plugin.core.reading import get_int, get_mapping, get_time
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import admission, pod_transitions
from backend_plugin.embedded.events import KUBELET, SCHEDULER, EventRecorder
from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.node_transitions import is_unreachable
from backend_plugin.embedded.objects import (
    Key,
    build_event_body,
    get_key,
    get_node_name,
    get_uid,
    has_started,
    is_ended,
    is_terminating,
    is_tracked,
)
from backend_plugin.embedded.options import RETRY_SECONDS
from backend_plugin.embedded.scheduling_cycle import Binding, Unschedulable
from backend_plugin.embedded.store import Store
from backend_plugin.embedded.workqueue import KeyedTasks
from backend_plugin.shell.cluster import ClusterUnavailable, LogLine, LogRequest


class PodController:
    """Updates pod objects in the store, starts and ends pods with a kubelet, and receives its reports."""

    def __init__(
        self, store: Store, recorder: EventRecorder, kubelet: Callable[["PodController"], Kubelet]
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = store.clock
        self._kubelet = kubelet(self)
        self._tasks = KeyedTasks()
        # Starting a process takes milliseconds: start one at a time, so that requests are served in between.
        self._starting = asyncio.Semaphore(1)
        self._loop = asyncio.get_running_loop()
        self._reports: dict[tuple[str, str], Callable[[], None]] = {}
        """The functions that process reports of the kubelet, by pod uid and kind of report, oldest first."""
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def create(self, manifest: Manifest, port: int) -> Manifest:
        """Create a pod. `port` is the port of this machine that is reserved for the pod's job.

        Raises:
            AlreadyExists: If a pod has the same name.
            RequestRejected: If the pod is invalid.
        """
        return self._store.create(admission.admit_pod(pod_transitions.prepare_pod(manifest, port)))

    def apply_decision(self, decision: Binding | Unschedulable) -> None:
        """Bind a pod to a node and start it, or store why it is unschedulable, as the scheduler decided."""
        pod = self._store.get_by_uid(decision.uid)
        if pod is None or get_node_name(pod):
            return
        now = self._clock()
        if isinstance(decision, Unschedulable):
            waits = pod_transitions.mark_unschedulable(pod, decision, now)
            if waits != pod:
                self._store.update(waits)
                event = build_event_body(SCHEDULER, "FailedScheduling", decision.message, warning=True)
                self._recorder.record(pod, event)
            return
        bound = self._store.update(pod_transitions.bind(pod, decision, now))
        self.start(get_uid(bound))
        key = get_key(pod)
        message = f"Successfully assigned {key.namespace}/{key.name} to {decision.node}"
        self._recorder.record(pod, build_event_body(SCHEDULER, "Scheduled", message))

    def start(self, uid: str) -> None:
        """Start a bound pod, unless it is running."""
        self._tasks.add(uid, lambda: self._start_pod(uid))

    def delete(self, pod: Manifest) -> None:
        """Delete a pod with its grace period. Remove it immediately if it does not run."""
        if is_terminating(pod):
            return
        if not get_node_name(pod) or is_ended(pod) or self._is_on_lost_node(pod):
            self.remove(pod)
            return
        self._request_termination(self._store.update(pod_transitions.mark_terminating(pod, self._clock())))
        for event in pod_transitions.iter_stop_events(pod):
            self._recorder.record(pod, event)

    def release(self, pod: Manifest) -> Manifest:
        """Remove the finalizer `TRACKING` of a pod, and the pod itself if it has ended and is terminating."""
        released = self._store.update(pod_transitions.without_tracking(pod))
        if is_terminating(released) and is_ended(released):
            self.remove(released)
        return released

    def stop(self, pod: Manifest) -> None:
        """End a running pod as if its deadline had passed; keep the pod object and its files."""
        uid = get_uid(pod)
        self._tasks.add(uid, lambda: self._kubelet.expire_pod(uid))

    def evict(self, pod: Manifest) -> None:
        """Delete a pod because its node is drained."""
        self.delete(self._store.update(pod_transitions.mark_evicted(pod, self._clock())))

    def remove(self, pod: Manifest) -> None:
        """Remove a pod and its files. Only mark a pod with the finalizer `TRACKING` as ended and deleted."""
        if is_tracked(pod):
            self._store.update(pod_transitions.mark_removed(pod, self._clock()))
            return
        uid = get_uid(pod)
        self._store.remove(uid)
        if get_node_name(pod):
            self._tasks.add(uid, lambda: self._remove_files(uid))

    def kill_pods(self, pods: Iterable[Manifest]) -> None:
        """Kill these pods because their node has failed. The kubelet reports nothing more about them."""
        self._kubelet.kill_pods([get_uid(pod) for pod in pods])

    async def adopt(self) -> None:
        """Take over the pods of an earlier server. No pod is started twice."""
        pods = [pod for pod in self._store.list_objects("Pod") if get_node_name(pod)]
        known = [
            pod for pod in pods if has_started(pod) or not (is_terminating(pod) or self._is_on_lost_node(pod))
        ]
        failed = await self._kubelet.adopt_pods([pod_transitions.with_visible_gpus(pod) for pod in known])
        for uid in failed:
            self._loop.call_later(RETRY_SECONDS, self.start, uid)
        await asyncio.sleep(0)  # Store what the kubelet reports before any other change.
        for pod in pods:
            now = self._store.get_by_uid(get_uid(pod))
            if now is not None and is_terminating(now):
                self._request_termination(now)

    def read_log(self, pod: Manifest, request: LogRequest) -> AsyncIterator[LogLine]:
        """Return the log lines of a container of the pod."""
        return self._kubelet.read_log(get_uid(pod), request)

    async def close(self) -> None:
        """Close the kubelet, which kills all pods. With the option `durable`, the next server adopts them."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.close()
        await self._kubelet.close()

    def on_status(self, uid: str, status: Manifest) -> None:
        """Store a status that the kubelet reports."""
        self._reports[uid, "status"] = lambda: self._store_status(uid, status)
        self._process_reports()

    def on_terminated(self, uid: str) -> None:
        """Remove a terminating pod, because the kubelet reports that its last process has ended."""
        self._reports[uid, "end"] = lambda: self._remove_terminated(uid)
        self._process_reports()

    def _process_reports(self) -> None:
        if self._closed or self._retry is not None:
            return
        try:
            while self._reports:
                key, process = next(iter(self._reports.items()))
                process()
                del self._reports[key]
        except ClusterUnavailable:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._retry_reports)

    def _remove_terminated(self, uid: str) -> None:
        pod = self._store.get_by_uid(uid)
        if pod is not None and is_terminating(pod):
            self.remove(pod)

    def _retry_reports(self) -> None:
        self._retry = None
        self._process_reports()

    def _store_status(self, uid: str, status: Manifest) -> None:
        pod = self._store.get_by_uid(uid)
        # A final phase does not change, even if the pod failed with its node and its end is reported later.
        if pod is None or is_ended(pod):
            return
        reported = pod_transitions.merge_status(pod, status)
        if reported == pod:
            return
        self._store.update(reported)
        for event in pod_transitions.iter_change_events(pod, status):
            self._recorder.record(pod, event)

    def _is_on_lost_node(self, pod: Manifest) -> bool:
        node = self._store.get(Key("Node", "", get_node_name(pod)))
        return node is None or is_unreachable(node)

    async def _start_pod(self, uid: str) -> None:
        async with self._starting:
            pod = self._store.get_by_uid(uid)
            if pod is None or self._closed:
                return
            try:
                await self._run_pod(uid, pod)
            except ClusterUnavailable:
                self._loop.call_later(RETRY_SECONDS, self.start, uid)

    async def _run_pod(self, uid: str, pod: Manifest) -> None:
        if is_terminating(pod):
            self.remove(pod)
            return
        if is_ended(pod) or self._is_on_lost_node(pod):
            return
        try:
            await self._kubelet.start_pod(pod_transitions.with_visible_gpus(pod))
        except OSError as error:
            message = f"Failed to create pod sandbox: {error}"
            event = build_event_body(KUBELET, "FailedCreatePodSandBox", message, warning=True)
            self._recorder.record(pod, event)
            self._loop.call_later(RETRY_SECONDS, self.start, uid)

    def _request_termination(self, pod: Manifest) -> None:
        self._tasks.add(get_uid(pod), lambda: self._terminate_pod(get_uid(pod)))

    # The next two functions read the pod again: the transaction that requested them may be rolled back.
    async def _terminate_pod(self, uid: str) -> None:
        pod = self._store.get_by_uid(uid)
        if pod is not None and is_terminating(pod):
            await self._kubelet.terminate_pod(uid, _compute_remaining_grace(pod, self._clock()))

    async def _remove_files(self, uid: str) -> None:
        if self._store.get_by_uid(uid) is None:
            await self._kubelet.remove_pod(uid)


def _compute_remaining_grace(pod: Manifest, now: datetime) -> float:
    metadata = get_mapping(pod, "metadata")
    grace = float(get_int(metadata, "deletionGracePeriodSeconds") or 0)
    until = get_time(metadata, "deletionTimestamp")
    # The timestamp has no fractions of a second.
    return grace if until is None else min(grace, max(0.0, (until - now).total_seconds() + 1))
