"""Detects the gang scheduling capabilities of a cluster with discovery, lists and dry runs.

The result contains a reason for each fact that cannot be determined. The decisions are in
`core.scheduling.selection`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.scheduling.adapter import QueueKind
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.operated import FLAG
from backend_plugin.core.scheduling.table import ADAPTERS
from backend_plugin.core.scheduling.words import bounded
from backend_plugin.core.values import Manifest
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import EVENTS, JOBS, PODS, Resource, are_names
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.shell.cluster import Unavailable

_DEPLOYMENTS: Final = Resource(group="apps", version="v1", plural="deployments")
# The Deployment has the default name, or another name and the default label.
_OPERATORS: Final = (
    {"fieldSelector": "metadata.name=training-operator"},
    {"labelSelector": "control-plane=kubeflow-training-operator"},
)
_LIMITS: Final = Resource(group="", version="v1", plural="limitranges")
_PROBE: Final = "kfpytorch-probe"
_DRY_RUN: Final = {"dryRun": "All", "fieldManager": "kfpytorch", "fieldValidation": "Ignore"}
_EVENTS: Final = "200"
"""The number of events that are read to find the schedulers that bind pods."""
_QUEUES: Final = "500"
_CLOSED: Final = ("Closed", "Closing")
_LONGEST: Final = 300
"""The maximum length of an error message in a reason. A webhook may return a long one."""

_POD: Final[Manifest] = {
    # Satisfies the `restricted` level of Pod Security, and fits into any quota that is not exhausted.
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "containers": [
        {
            "name": "probe",
            "image": "probe",
            "resources": {part: {"cpu": "10m", "memory": "16Mi"} for part in ("requests", "limits")},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
    "schedulingGroup": {"podGroupName": _PROBE},
}
_QUEUED: Final = {"kueue.x-k8s.io/queue-name": _PROBE}
_KUEUE: Final = "kueue.x-k8s.io"


class _Unknown(Exception):
    """A fact cannot be determined; the message is the reason."""


class Looking:
    """Detects the capabilities of one cluster."""

    def __init__(self, api: Api, permissions: Permissions, options: KubernetesOptions) -> None:
        self._api = api
        self._permissions = permissions
        self._everywhere = not options.namespaces

    async def look(self, namespace: str, *, tries_pod: bool = True) -> Findings:
        """Return the current capabilities for the jobs of a namespace.

        Without `tries_pod` no pod is created in a dry run, and what it would show is unknown.

        Raises:
            Unavailable: If the API server does not respond.
        """
        if not are_names(namespace):
            raise Unavailable(f"{namespace} is not a valid namespace name")
        apis = await self._told(self._apis())
        served = apis if isinstance(apis, Mapping) else {}
        asked: dict[str, Awaitable[Any]] = {
            "kubernetes": self._version(),
            "operator_scheduler": self._operator(),
            "schedulers": self._binders(namespace),
            "container_defaults": self._defaults(namespace),
        }
        if tries_pod:
            asked["pod"] = self._pod(namespace)
        if _KUEUE in served:
            asked["suspends_jobs"] = self._suspends(namespace)
        kinds = _queue_kinds(served)
        for name, (kind, version) in kinds.items():
            asked[name] = self._queues(
                Resource(group=kind.group, version=version, plural=kind.plural), kind, namespace
            )
        answers = await asyncio.gather(*map(self._told, asked.values()))
        return _findings({"apis": apis, **dict(zip(asked, answers, strict=True))}, kinds)

    async def _told(self, fact: Awaitable[Any]) -> Any:
        """Return the fact, or the exception that it raised."""
        try:
            return await fact
        except (_Unknown, Unavailable) as trouble:
            return trouble

    # ---- facts

    async def _apis(self) -> Mapping[str, Sequence[str]]:
        groups = entries(await self._asked(Question(path="/apis", doubts=False), None), "groups")
        return {text(group, "name"): tuple(_versions(group)) for group in groups}

    async def _version(self) -> str:
        said = await self._asked(Question(path="/version", doubts=False), None)
        return text(said, "gitVersion").removeprefix("v") or None  # type: ignore[return-value]

    async def _operator(self) -> str:
        rule = Rule(resource=_DEPLOYMENTS, verbs=("list",))
        for query in _OPERATORS:
            question = Question(path=_DEPLOYMENTS.path(""), query=query, doubts=False)
            found = entries(await self._asked(question, rule), "items")
            names = {_flag(each) for each in found}
            if None in names:
                raise _Unknown(f"{FLAG} is set, but its value comes from a shell or a variable")
            if len(names) == 1:
                return names.pop() or ""
            if names:
                raise _Unknown(
                    f"several training-operators run with different values of {FLAG}: "
                    f"{', '.join(sorted(map(str, names)))}"
                )
        raise _Unknown("there is no Deployment training-operator")

    async def _binders(self, namespace: str) -> Sequence[str] | None:
        scope = "" if self._everywhere else namespace
        query = {"fieldSelector": "reason=Scheduled", "limit": _EVENTS}
        question = Question(path=EVENTS.path(scope), query=query, doubts=False)
        found = await self._asked(question, Rule(resource=EVENTS, verbs=("list",), namespace=scope))
        seen = {
            text(section(event, "source"), "component") or text(event, "reportingComponent")
            for event in entries(found, "items")
        }
        # Without events there is no evidence for any scheduler.
        return tuple(sorted(seen - {""})) or None

    async def _defaults(self, namespace: str) -> Mapping[str, str]:
        """Return the default requests of containers. If LimitRanges differ, the first one applies."""
        rule = Rule(resource=_LIMITS, verbs=("list",), namespace="" if self._everywhere else namespace)
        found = await self._asked(Question(path=_LIMITS.path(namespace), doubts=False), rule)
        said: dict[str, str] = {}
        for ranges in entries(found, "items"):
            for each in entries(section(ranges, "spec"), "limits"):
                if text(each, "type") == "Container":
                    # A default limit is also the default request.
                    asked = {**section(each, "default"), **section(each, "defaultRequest")}
                    said = {**{name: str(amount) for name, amount in asked.items()}, **said}
        # Ignores values that are not quantities or that are too large; no API server stores them.
        return {name: amount for name, amount in said.items() if bounded(amount) is not None}

    async def _queues(self, resource: Resource, kind: QueueKind, namespace: str) -> Sequence[str]:
        scope = namespace if kind.is_namespaced else ""
        rule = Rule(resource=resource, verbs=("list",), namespace="" if self._everywhere else scope)
        question = Question(path=resource.path(scope), query={"limit": _QUEUES}, doubts=False)
        found = await self._asked(question, rule)
        if text(section(found, "metadata"), "continue"):
            raise _Unknown(f"there are more than {_QUEUES} {resource}")
        open_ones = (
            each for each in entries(found, "items") if text(section(each, "status"), "state") not in _CLOSED
        )
        return tuple(sorted(text(section(each, "metadata"), "name") for each in open_ones))

    async def _pod(self, namespace: str) -> Manifest:
        """Return the spec of a pod after admission, from a dry run."""
        pod: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": _about(namespace), "spec": _POD}
        return section(await self._tried(PODS, namespace, pod), "spec")

    async def _suspends(self, namespace: str) -> bool:
        template: Manifest = {"spec": {"containers": [{"name": "pytorch", "image": "probe"}]}}
        job: Manifest = {
            "apiVersion": f"{JOBS.group}/{JOBS.version}",
            "kind": "PyTorchJob",
            "metadata": {**_about(namespace), "labels": _QUEUED},
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": {"replicas": 1, "restartPolicy": "Never", "template": template}
                }
            },
        }
        made = await self._tried(JOBS, namespace, job)
        return section(made, "spec", "runPolicy").get("suspend") is True

    async def _tried(self, resource: Resource, namespace: str, manifest: Manifest) -> Manifest:
        """Return the object that a dry run of its creation returns."""
        scope = "" if self._everywhere else namespace
        question = Question(
            method="POST",
            path=resource.path(namespace),
            query=_DRY_RUN,
            body=msgspec.json.encode(manifest),
            doubts=False,
        )
        return await self._asked(question, Rule(resource=resource, verbs=("create",), namespace=scope))

    async def _asked(self, question: Question, rule: Rule | None) -> Manifest:
        try:
            return await self._api.object(question)
        except Answered as answer:
            if answer.is_not_authorized and rule is not None:
                raise _Unknown(self._permissions.missing(rule, answer.message)) from answer
            if answer.code >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise Unavailable(f"the API server answers {answer}") from answer
            raise _Unknown(f"the API server answers {answer}"[:_LONGEST]) from answer


def _findings(told: Mapping[str, Any], kinds: Iterable[str]) -> Findings:
    for each in told.values():
        if isinstance(each, Unavailable):
            raise each
    unknown = {name: str(each) for name, each in told.items() if isinstance(each, _Unknown)}
    known = {name: each for name, each in told.items() if name not in unknown}
    pod = known.pop("pod", None)
    if "pod" in unknown:
        unknown["admission_scheduler"] = unknown["keeps_scheduling_group"] = unknown.pop("pod")
    queues = {name: known.pop(name) for name in kinds if name in known}
    return Findings(
        **known,
        queues=queues,
        admission_scheduler=None if pod is None else text(pod, "schedulerName"),
        keeps_scheduling_group=None if pod is None else "schedulingGroup" in pod,
        unknown=unknown,
    )


def _queue_kinds(served: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[QueueKind, str]]:
    """Return the queue kinds that the cluster serves and their versions, by scheduler name."""
    firsts = ((name, next(iter(styles.values())).queues) for name, styles in ADAPTERS.items())
    return {
        name: (kind, served[kind.group][0])
        for name, kind in firsts
        if kind is not None and served.get(kind.group)
    }


def _versions(group: Manifest) -> Sequence[str]:
    """Return the versions of an API group, with the preferred one first."""
    preferred = text(section(group, "preferredVersion"), "version")
    said = [text(each, "version") for each in entries(group, "versions")]
    return tuple(dict.fromkeys(filter(None, [preferred, *said])))


def _flag(deployment: Manifest) -> str | None:
    """Return the gang scheduler that the operator's flag names. None if the flag's value is not literal."""
    words: list[str] = []
    for container in entries(section(deployment, "spec", "template", "spec"), "containers"):
        for part in ("command", "args"):
            said = container.get(part)
            words += map(str, said) if isinstance(said, Sequence) and not isinstance(said, str) else ()
    return _value(words)


def _value(words: Sequence[str]) -> str | None:
    # Without arguments there is no flag.
    for word, following in zip(words, [*words[1:], ""], strict=False):
        # Go accepts one dash or two.
        name, equals, value = f"--{word.lstrip('-')}".partition("=")
        if word.startswith("-") and name == FLAG:
            said = value if equals else following
            return None if "$" in said else said
    return None if any(FLAG in word for word in words) else ""


def _about(namespace: str) -> Manifest:
    return {"name": _PROBE, "namespace": namespace}
