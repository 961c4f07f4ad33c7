"""The structured fields of log lines about a job."""

from collections.abc import Mapping

from backend_plugin.core.job import Attempt
from backend_plugin.shell.cached_job import CachedJob


def build_attempt_fields(run: Attempt, job: str = "") -> Mapping[str, object]:
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


def build_cached_job_fields(entry: CachedJob) -> Mapping[str, object]:
    """Return the log fields for a cached job."""
    if entry.origin is not None:
        return build_attempt_fields(entry.origin.run, entry.name)
    return build_job_fields(entry.namespace, entry.name)


def build_job_fields(namespace: str, job: str) -> Mapping[str, object]:
    """Return the log fields for a job when only its namespace and name are available."""
    return {"namespace": namespace, "job": job}
