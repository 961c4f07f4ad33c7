"""The lifecycle of pod objects: creation, binding, start, termination and removal.

The processes of pods are in `kubelet`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Final

from backend_plugin.core.reading import moment, number, section
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import admission, node_rejections, pod_events, pod_states
from backend_plugin.embedded.events import KUBELET, SCHEDULER, Recorder, Saying
from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.node_rejections import Rejection
from backend_plugin.embedded.node_states import is_lost
from backend_plugin.embedded.nodes import Binding, Unschedulable, read_claim, read_node
from backend_plugin.embedded.objects import (
    Key,
    has_begun,
    is_ended,
    is_terminating,
    key_of,
    node_of,
    uid_of,
)
from backend_plugin.embedded.store import Clock, Store
from backend_plugin.embedded.tasks import Tasks
from backend_plugin.shell.cluster import LogLine, LogRequest, Unavailable

_AGAIN: Final = 1.0
"""Seconds before an operation is retried after an error, such as a full disk or too many processes."""


class Pods:
    """Updates pods and controls the kubelet, which reports to it."""

    def __init__(
        self, store: Store, recorder: Recorder, clock: Clock, kubelet: Callable[["Pods"], Kubelet]
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._kubelet = kubelet(self)
        self._tasks = Tasks()
        # Starting a process takes milliseconds: start one at a time, so that requests are served in between.
        self._starting = asyncio.Semaphore(1)
        self._loop = asyncio.get_running_loop()
        self._reported: dict[str, Manifest] = {}
        self._gone: dict[str, None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def create(self, manifest: Manifest, port: int) -> Manifest:
        """Create a pod.

        Raises:
            AlreadyExists: If a pod has the same name.
            Refused: If the pod is invalid.
        """
        pod = self._store.create(admission.admit_pod(pod_states.sent(manifest, port)))
        if node_of(pod):  # The manifest names a node, so the scheduler does not place the pod.
            self.start(uid_of(pod))
        return pod

    def decide(self, decision: Binding | Unschedulable) -> None:
        """Apply a decision of the scheduler to a pending pod."""
        pod = self._store.by_uid(decision.uid)
        if pod is None or node_of(pod):
            return
        now = self._clock()
        if isinstance(decision, Unschedulable):
            waits = pod_states.unschedulable(pod, decision, now)
            if waits != pod:
                self._store.update(waits)
                said = Saying(
                    reason="FailedScheduling", message=decision.message, component=SCHEDULER, warning=True
                )
                self._recorder.say(pod, said)
            return
        bound = self._store.update(pod_states.bound(pod, decision, now))
        self.start(uid_of(bound))
        key = key_of(pod)
        message = f"Successfully assigned {key.namespace}/{key.name} to {decision.node}"
        self._recorder.say(pod, Saying(reason="Scheduled", message=message, component=SCHEDULER))

    def start(self, uid: str) -> None:
        """Start a bound pod, unless it is running."""
        self._tasks.add(uid, lambda: self._start(uid))

    def delete(self, pod: Manifest) -> None:
        """Delete a pod with its grace period. Remove it immediately if it does not run."""
        if is_terminating(pod):
            return
        if not node_of(pod) or is_ended(pod) or self._is_cut_off(pod):
            self.remove(pod)
            return
        self._terminate(self._store.update(pod_states.terminating(pod, self._clock())))
        for saying in pod_events.stopping(pod):
            self._recorder.say(pod, saying)

    def evict(self, pod: Manifest) -> None:
        """Delete a pod because its node is drained."""
        self.delete(self._store.update(pod_states.evicted(pod, self._clock())))

    def remove(self, pod: Manifest) -> None:
        """Remove a pod object, and the files of the pod."""
        uid = uid_of(pod)
        self._store.remove(uid)
        if node_of(pod):
            self._tasks.add(uid, lambda: self._forget(uid))

    def cut_off(self, pods: Iterable[Manifest]) -> None:
        """Kill these pods because their node has failed. The kubelet reports nothing more about them."""
        self._kubelet.lose([uid_of(pod) for pod in pods])

    async def adopt(self) -> None:
        """Take over the pods of an earlier server. No pod is started twice."""
        pods = [pod for pod in self._store.all("Pod") if node_of(pod)]
        known = [
            pod for pod in pods if has_begun(pod) or (pod_states.is_placed(pod) and self._may_begin(pod))
        ]
        failed = await self._kubelet.adopt([pod_states.with_gpus(pod) for pod in known])
        for uid in failed:
            self._loop.call_later(_AGAIN, self.start, uid)
        for pod in pods:
            if not (pod_states.is_placed(pod) or is_ended(pod)):
                self.start(uid_of(pod))
        await asyncio.sleep(0)  # Store what the kubelet reports before any other change.
        for pod in pods:
            now = self._store.by_uid(uid_of(pod))
            if now is not None and is_terminating(now):
                self._terminate(now)

    def log(self, pod: Manifest, request: LogRequest) -> AsyncIterator[LogLine]:
        """Return the log lines of a container of the pod."""
        return self._kubelet.log(uid_of(pod), request)

    async def close(self) -> None:
        """Close the kubelet. The next server determines what happens to the pods afterwards."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.close()
        await self._kubelet.close()

    def status(self, uid: str, status: Manifest) -> None:
        """Store a status that the kubelet reports."""
        self._reported[uid] = status
        self._take_reports()

    def gone(self, uid: str) -> None:
        """Remove a terminating pod, because the kubelet reports that its last process has ended."""
        self._gone[uid] = None
        self._take_reports()

    def _take_reports(self) -> None:
        if self._closed or self._retry is not None:
            return
        try:
            while self._reported:
                uid, status = next(iter(self._reported.items()))
                self._accept(uid, status)
                del self._reported[uid]
            while self._gone:
                uid = next(iter(self._gone))
                self._bury(uid)
                del self._gone[uid]
        except Unavailable:
            self._retry = self._loop.call_later(_AGAIN, self._take_reports_again)

    def _take_reports_again(self) -> None:
        self._retry = None
        self._take_reports()

    def _accept(self, uid: str, status: Manifest) -> None:
        pod = self._store.by_uid(uid)
        # A final phase does not change. This includes a pod whose node failed before it ended.
        if pod is None or is_ended(pod):
            return
        reported = pod_states.reported(pod, status)
        if reported == pod:
            return
        self._store.update(reported)
        for saying in pod_events.between(pod, status):
            self._recorder.say(pod, saying)

    def _bury(self, uid: str) -> None:
        pod = self._store.by_uid(uid)
        if pod is not None and is_terminating(pod):
            self.remove(pod)

    def _may_begin(self, pod: Manifest) -> bool:
        return not (is_terminating(pod) or self._is_cut_off(pod))

    def _is_cut_off(self, pod: Manifest) -> bool:
        node = self._store.get(Key("Node", "", node_of(pod)))
        return node is None or is_lost(node)

    async def _start(self, uid: str) -> None:
        async with self._starting:
            try:
                await self._run(uid)
            except Unavailable:
                self._loop.call_later(_AGAIN, self.start, uid)

    async def _run(self, uid: str) -> None:
        pod = None if self._closed else self._store.by_uid(uid)
        if pod is None:
            return
        if not self._may_begin(pod):
            if is_terminating(pod):
                self.remove(pod)
            return
        if not pod_states.is_placed(pod):
            pod = self._admit(pod)
        if is_ended(pod):
            return
        try:
            await self._kubelet.run(pod_states.with_gpus(pod))
        except OSError as error:
            said = f"Failed to create pod sandbox: {error}"
            self._recorder.say(
                pod, Saying(reason="FailedCreatePodSandBox", message=said, component=KUBELET, warning=True)
            )
            self._loop.call_later(_AGAIN, self.start, uid)

    def _admit(self, pod: Manifest) -> Manifest:
        """Return the pod as accepted or rejected by the kubelet of the node that it names."""
        node, pods = node_of(pod), self._store.all("Pod")
        there = [
            read_claim(each)
            for each in pods
            if node_of(each) == node and pod_states.is_placed(each) and not is_ended(each)
        ]
        found = self._store.get(Key("Node", "", node)) or {}
        verdict = node_rejections.admit(read_claim(pod), read_node(found), there)
        if not isinstance(verdict, Rejection):
            return self._store.update(pod_states.bound(pod, verdict, self._clock()))
        said = Saying(reason=verdict.reason, message=verdict.message, component=KUBELET, warning=True)
        self._recorder.say(pod, said)
        return self._store.update(pod_states.rejected(pod, verdict, self._clock()))

    def _terminate(self, pod: Manifest) -> None:
        self._tasks.add(uid_of(pod), lambda: self._end(uid_of(pod)))

    # Both functions check again: the transaction that requested them may have been rolled back.
    async def _end(self, uid: str) -> None:
        pod = self._store.by_uid(uid)
        if pod is not None and is_terminating(pod):
            await self._kubelet.terminate(uid, _grace_left(pod, self._clock()))

    async def _forget(self, uid: str) -> None:
        if self._store.by_uid(uid) is None:
            await self._kubelet.forget(uid)


def _grace_left(pod: Manifest, now: datetime) -> float:
    metadata = section(pod, "metadata")
    grace = float(number(metadata, "deletionGracePeriodSeconds") or 0)
    until = moment(metadata, "deletionTimestamp")
    # The timestamp has no fractions of a second.
    return grace if until is None else min(grace, max(0.0, (until - now).total_seconds() + 1))
