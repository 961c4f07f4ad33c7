"""Sets the defaults of new PyTorchJobs, as the API server does, and limits their number of replicas."""

from typing import Final

from backend_plugin.core.pod_rules.field_errors import build_forbidden_error
from backend_plugin.core.reading import get_int, get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission.pod import build_unprocessable_resource
from backend_plugin.embedded.operators.pytorchjob.job_schema import SCHEMA
from backend_plugin.embedded.operators.pytorchjob.job_spec import REPLICA_SPECS

# The limit for one job. Creating thousands of pods in one pass would block the event loop for too long.
MOST_REPLICAS: Final = 1_000


def admit_job(manifest: Manifest) -> Manifest:
    """Return a new PyTorchJob in its stored form: with defaults, but without the uid, version and times.

    Raises:
        RequestRejected: If the job has too many replicas for one machine.
    """
    specs = get_mapping(manifest, "spec", REPLICA_SPECS)
    replicas = sum(get_int(specs, role, "replicas") or 0 for role in specs)
    if replicas > MOST_REPLICAS:
        detail = f"must have at most {MOST_REPLICAS} replicas in total, has {replicas}"
        raise build_unprocessable_resource(manifest, [build_forbidden_error(f"spec.{REPLICA_SPECS}", detail)])
    return SCHEMA.prune_object(manifest)
