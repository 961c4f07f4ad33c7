"""Who owns a job: the FlyteWorkflow of its execution, so that the cluster removes the one with the other.

Lives here: asking for it, as long as that is permitted and of use, and what is an answer. Does not: what
follows; that is the cluster's garbage collector's, or `shell.orphans`'.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.job import OwnerReference
from backend_plugin.core.reading import text
from backend_plugin.kube import wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import Resource, are_names
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.shell.cluster import Unavailable
from backend_plugin.shell.timeouts import timeout

WORKFLOWS: Final = Resource(group="flyte.lyft.com", version="v1alpha1", plural="flyteworkflows")
_KIND: Final = "FlyteWorkflow"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""A workflow may have a megabyte; of interest is that there is one."""
_SECONDS: Final = 1.0
"""A job is worth more than its owner: it waits so long for the answer."""
_LONGEST_PAUSE: Final = 900.0
_EVERYWHERE: Final = ""


@dataclass(slots=True, kw_only=True)
class _Pause:
    """Why nothing is asked at the moment."""

    why: str
    until: float
    seconds: float
    rule: Rule | None
    """What was missing."""


class Owners:
    """Asks for FlyteWorkflows; where these are elsewhere, or not ours to see, ever more rarely."""

    def __init__(self, api: Api, permissions: Permissions, pause: float) -> None:
        self._api = api
        self._permissions = permissions
        self._pause = pause
        self._pauses: dict[str, _Pause] = {}
        """By namespace: a role may permit it in one, and not in another."""

    async def of(self, namespace: str, execution: str, scope: str) -> OwnerReference | None:
        """The owner of an execution's jobs; None if it cannot be told. `scope` is where a rule belongs."""
        if not execution or self._why_paused(namespace):
            return None
        try:
            async with timeout(_SECONDS):
                return await self.found(namespace, execution, scope)
        except (Unavailable, asyncio.TimeoutError):
            return None

    async def found(self, namespace: str, execution: str, scope: str) -> OwnerReference | None:
        """The owner of an execution's jobs; None: there certainly is none here.

        Raises:
            Unavailable: If that cannot be told.
        """
        if not are_names(namespace, execution):
            raise Unavailable(f"{namespace}/{execution} is no name of a {_KIND}")
        if why := self._why_paused(namespace):
            raise Unavailable(why)
        rule = Rule(resource=WORKFLOWS, verbs=("get",), namespace=scope)
        question = Question(path=WORKFLOWS.path(namespace, execution), accept=_METADATA, doubts=False)
        try:
            found = wire.metadata(await self._api.object(question))
        except Answered as answer:
            # That there is no such kind says nothing of any execution: they are in another cluster.
            if answer.is_of(WORKFLOWS.plural, execution):
                self._go_on(namespace)
                return None
            raise self._no_answer(namespace, answer, rule) from answer
        self._go_on(namespace)
        uid = text(found, "uid")
        if not uid or text(found, "name") != execution:
            raise Unavailable(f"the API server answers with something else than {_KIND} {execution}")
        version = f"{WORKFLOWS.group}/{WORKFLOWS.version}"
        return OwnerReference(api_version=version, kind=_KIND, name=execution, uid=uid)

    def _why_paused(self, namespace: str) -> str:
        """Empty if there is an answer to be had."""
        for pause in (self._pauses.get(_EVERYWHERE), self._pauses.get(namespace)):
            if pause is not None and asyncio.get_running_loop().time() < pause.until:
                return pause.why
        return ""

    def _no_answer(self, namespace: str, answer: Answered, rule: Rule) -> Unavailable:
        why = f"the API server answers {answer}"
        if answer.is_not_authorized:
            why = self._permissions.missing(rule, answer.message)
            self._wait(namespace, why, rule)
        elif answer.is_not_served:
            why = f"the cluster has no {WORKFLOWS}: Flyte's executions are elsewhere"
            self._wait(_EVERYWHERE, why, None)
        elif not answer.is_passing:
            self._wait(namespace, why, None)
        return Unavailable(why)

    def _wait(self, where: str, why: str, rule: Rule | None) -> None:
        last = self._pauses.get(where)
        seconds = self._pause if last is None else max(self._pause, min(2 * last.seconds, _LONGEST_PAUSE))
        until = asyncio.get_running_loop().time() + seconds
        self._pauses[where] = _Pause(why=why, until=until, seconds=seconds, rule=rule)

    def _go_on(self, namespace: str) -> None:
        """There was an answer; a rule is there if nobody else misses it, so that it is said once."""
        paused = self._pauses.pop(namespace, None)
        self._pauses.pop(_EVERYWHERE, None)
        if paused is None or paused.rule is None:
            return
        if all(each.rule != paused.rule for each in self._pauses.values()):
            self._permissions.granted(paused.rule)
