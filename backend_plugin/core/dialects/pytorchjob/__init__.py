"""The dialect (kind of job) PyTorchJob, for training-operator 1.7 to 1.9."""

from typing import Final

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.dialects.pytorchjob import manifest, reader, resource
from backend_plugin.core.dialects.pytorchjob.resource import CONTAINER, LABELS, PORT, RESOURCE
from backend_plugin.core.names import LONGEST_NAME
from backend_plugin.core.observed import JobLimit

DIALECT: Final = Dialect(
    resource=RESOURCE,
    number=1,
    operator="training-operator",
    container=CONTAINER,
    port=PORT,
    labels=LABELS,
    # <job>-worker-<index>, with an index up to 99999, fits into the 63 characters of a pod or service name.
    longest_name=LONGEST_NAME,
    pod_suffix=r"-(?:master-0|worker-\d{1,9})",
    build=manifest.build,
    build_probe=manifest.build_probe,
    read=reader.read_job,
    fields=reader.JobFields,
    is_suspended=reader.is_suspended,
    end_spec=manifest.END,
    suspend_spec=manifest.SUSPEND,
    build_stop_spec=manifest.build_stop_spec,
    limits={"deadline": JobLimit.DEADLINE, "backoff limit": JobLimit.BACKOFF},
    build_pod_name=resource.build_pod_name,
    creation_failures=("FailedCreatePod", "FailedCreateService"),
    # The Deployment has the default name, or another name and the default label.
    deployments=(
        {"fieldSelector": "metadata.name=training-operator"},
        {"labelSelector": "control-plane=kubeflow-training-operator"},
    ),
    installation="kubectl apply --server-side -k "
    '"github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.3"',
    end_events={"PyTorchJobSucceeded": job_conditions.SUCCEEDED, "PyTorchJobFailed": job_conditions.FAILED},
    list_added_containers=resource.list_added_containers,
    operator_containers=frozenset({resource.INIT_CONTAINER}),
    check_container=manifest.check_ports,
)
