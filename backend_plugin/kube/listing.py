"""Lists all jobs of this backend from the API server. The server's cache of jobs comes from `reflector`."""

from collections.abc import AsyncIterator, Sequence

from backend_plugin.core.observed import Job, read_job
from backend_plugin.kube import wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import JOBS, LABELLED
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions, Rule
from backend_plugin.shell.cluster import Unavailable


async def jobs(api: Api, permissions: Permissions, options: KubernetesOptions) -> Sequence[Job]:
    """Return the jobs in all configured namespaces.

    Raises:
        Unavailable: If a list failed.
    """
    found: list[Job] = []
    for namespace in options.namespaces or ("",):
        rule = Rule(resource=JOBS, verbs=("list", "watch"), namespace=namespace)
        try:
            found += [job async for job in _listed(api, namespace, options.page)]
        except Answered as answer:
            if answer.is_not_authorized:
                raise Unavailable(permissions.missing(rule, answer.message)) from answer
            raise Unavailable(f"the API server answers {answer}") from answer
    return found


async def _listed(api: Api, namespace: str, limit: int) -> AsyncIterator[Job]:
    parser, rest = wire.Parser(wire.JobWire, read_job), ""
    while True:
        query = {**LABELLED, "limit": str(limit)} | ({"continue": rest} if rest else {})
        page = await api.read(Question(path=JOBS.path(namespace), query=query), parser.page)
        for each in page.items:
            if isinstance(each.record, Job):
                yield each.record
        rest = page.rest
        if not rest:
            return
