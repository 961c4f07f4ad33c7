"""The structured fields of log lines about a job."""

from collections.abc import Mapping

from backend_plugin.core.job import Run
from backend_plugin.shell.cache import Entry


def of_run(run: Run, job: str = "") -> Mapping[str, object]:
    """Return the log fields for an attempt; `job` is empty if the attempt has no job."""
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
    """Return the log fields for a cached job."""
    if entry.origin is not None:
        return of_run(entry.origin.run, entry.name)
    return of_name(entry.namespace, entry.name)


def of_name(namespace: str, job: str) -> Mapping[str, object]:
    """Return the log fields for a job when only its namespace and name are available."""
    return {"namespace": namespace, "job": job}
