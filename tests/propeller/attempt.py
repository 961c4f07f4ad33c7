"""A task attempt: CreateTask, then repeated GetTask calls from a self-refreshing cache.

Calls may overlap. The last one to complete counts, as in propeller's cache.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
from flyteidl.admin import agent_pb2

from propeller.arrival import TaskRequest
from propeller.record import ENDS, PASSING, Attempt, against_the_rules, phase_of, rank
from propeller.wire import Wire, delete_request, get_request

_RESYNC: Final = 0.2
"""The polling interval in seconds; propeller's minimum is 5."""


class Follower:
    """Follows an attempt."""

    def __init__(self, wire: Wire, asked: TaskRequest, record: Attempt, max_failures: int) -> None:
        self.record = record
        self.failures = 0
        self.trouble = ""
        self.violations: list[str] = []
        self._wire = wire
        self._asked = asked
        self._max_failures = max_failures
        self._lock = threading.Lock()
        self._latest: agent_pb2.Resource | None = None
        self._reached = 0
        self._due = 0.0

    @property
    def latest(self) -> agent_pb2.Resource | None:
        with self._lock:
            return self._latest

    @property
    def is_frozen(self) -> bool:
        """True after too many errors. Errors are never reset, and propeller's cache stops after the sixth."""
        return self.failures > self._max_failures

    def create(self) -> None:
        """Write the inputs and call CreateTask.

        Raises:
            grpc.RpcError: If the call fails.
        """
        self._asked.write_inputs()
        self.record.meta = self._wire.create(self._asked.create(self.record.number))

    def delete(self) -> None:
        """Call DeleteTask.

        Raises:
            grpc.RpcError: If the call fails.
        """
        assert self.record.meta is not None
        self._wire.delete(delete_request(self.record.meta))
        self.record.deleted = True

    def poll(self) -> None:
        """Call GetTask if the interval has passed, without waiting for the response."""
        now = time.monotonic()
        if now < self._due or self.is_frozen or self._has_ended():
            return
        self._due = now + _RESYNC
        assert self.record.meta is not None
        prefix = self._asked.output(self.record.number).as_uri()
        call = self._wire.get(get_request(self.record.meta, prefix))
        call.add_done_callback(self._noting(self._reached))

    def _has_ended(self) -> bool:
        latest = self.latest
        # The cache may poll again after a retryable failure.
        return latest is not None and phase_of(latest) in ENDS - {"RETRYABLE_FAILED"}

    def _noting(self, reached: int) -> Callable[[Any], None]:
        def note(call: Any) -> None:
            try:
                resource = call.result().resource
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                self._failed(error)
                return
            with self._lock:
                self.violations += against_the_rules(resource, reached)
                self.record.answers.append(resource)
                self._latest = resource
                self._reached = max(self._reached, rank(phase_of(resource)))

        return note

    def _failed(self, error: Any) -> None:
        if not isinstance(error, grpc.RpcError):
            return  # Closing the channel cancels its calls.
        with self._lock:
            self.failures += 1
            self.trouble = f"{error.code().name}: {error.details()}"
            if error.code() not in PASSING:
                self.violations.append(f"GetTask raised {self.trouble}")
