"""Who owns a job: the FlyteWorkflow of its execution, so that the cluster removes the one with the other.

Lives here: asking for it, as long as that is permitted and of use. Does not: what follows; that is the
cluster's garbage collector's.
"""

import asyncio
from typing import Final

from backend_plugin.core.job import OwnerReference
from backend_plugin.core.reading import text
from backend_plugin.kube import wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import Resource
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.shell.cluster import Unavailable

WORKFLOWS: Final = Resource(group="flyte.lyft.com", version="v1alpha1", plural="flyteworkflows")
_KIND: Final = "FlyteWorkflow"
_SECONDS: Final = 1.0
"""A job is worth more than its owner: it waits so long for the answer."""


class Owners:
    """Asks for FlyteWorkflows; where these are elsewhere, or not ours to see, only now and then."""

    def __init__(self, api: Api, permissions: Permissions, pause: float) -> None:
        self._api = api
        self._permissions = permissions
        self._pause = pause
        self._not_before = 0.0

    async def of(self, namespace: str, execution: str, scope: str) -> OwnerReference | None:
        """The owner of an execution's jobs; None if it cannot be told. `scope` is where a rule belongs."""
        loop = asyncio.get_running_loop()
        if not execution or loop.time() < self._not_before:
            return None
        question = Question(path=WORKFLOWS.path(namespace, execution))
        rule = Rule(resource=WORKFLOWS, verbs=("get",), namespace=scope)
        try:
            found = wire.object_of(await asyncio.wait_for(self._api.once(question), _SECONDS))
        except Answered as answer:
            if answer.is_not_authorized:
                self._permissions.missing(rule, answer.message)
            # That one workflow is not there says nothing of others; that there is no such kind does.
            if not answer.is_not_found and not answer.is_passing:
                self._not_before = loop.time() + self._pause
            return None
        except (Unavailable, wire.Malformed, asyncio.TimeoutError):
            return None
        self._permissions.granted(rule)
        uid = text(wire.metadata(found), "uid")
        if not uid:
            return None
        version = f"{WORKFLOWS.group}/{WORKFLOWS.version}"
        return OwnerReference(api_version=version, kind=_KIND, name=execution, uid=uid)
