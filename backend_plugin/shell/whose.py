"""Whose a line of our own log is: the fields that every line about a job carries."""

from collections.abc import Mapping

from backend_plugin.core.job import Run
from backend_plugin.shell.cache import Entry


def of_run(run: Run, job: str = "") -> Mapping[str, object]:
    """Of an attempt, for which there may be no job."""
    return {
        "execution": run.execution,
        "project": run.project,
        "domain": run.domain,
        "node": run.node_id,
        "attempt": run.attempt,
        "namespace": run.namespace,
        "job": job,
    }


def of_entry(entry: Entry) -> Mapping[str, object]:
    """Of a job that was seen."""
    if entry.origin is not None:
        return of_run(entry.origin.run, entry.name)
    return of_name(entry.namespace, entry.name)


def of_name(namespace: str, job: str) -> Mapping[str, object]:
    """Of a job of which nothing else is known."""
    return {"namespace": namespace, "job": job}
