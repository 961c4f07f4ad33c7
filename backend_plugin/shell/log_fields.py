"""The structured fields of log lines about a job."""

from collections.abc import Mapping

from backend_plugin.core.job import Attempt


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


def build_job_fields(namespace: str, job: str) -> Mapping[str, object]:
    """Return the log fields for a job when only its namespace and name are available."""
    return {"namespace": namespace, "job": job}
