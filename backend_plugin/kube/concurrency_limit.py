"""A concurrency limit for API requests, with a share for each namespace."""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from backend_plugin.kube.connection import ApiRequest

_OF_ONE_NAMESPACE: Final = 0.75
"""The share of the slots for one namespace. If all requests of a namespace hang, as behind a webhook that
does not respond, other namespaces still get slots."""


class ConcurrencyLimit:
    """A concurrency limit that a group of requests shares."""

    def __init__(self, at_a_time: int, *, is_long: bool = False) -> None:
        """Limit to `at_a_time` requests; if `is_long`, the timeout does not include the time in the queue."""
        self.is_long = is_long
        self.slots = asyncio.Semaphore(at_a_time)
        """The slots: a request holds one during each attempt, and none between its attempts."""
        self._share = max(1, int(at_a_time * _OF_ONE_NAMESPACE))
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def get_namespace_slots(self, request: ApiRequest) -> asyncio.Semaphore:
        """Return the semaphore of the request's namespace, to acquire before one of `slots`.

        A request that still waits for its namespace must not hold a slot, which another one could use.
        """
        _, _, rest = request.path.partition("/namespaces/")
        namespace = rest.partition("/")[0]
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = asyncio.Semaphore(self._share)
        return share
