"""The dialect (kind of job) TrainJob, for Kubeflow Trainer 2.2 and later, which runs it as a JobSet."""

import re
from typing import Final

from backend_plugin.core import job_conditions
from backend_plugin.core.dialects.base import Dialect, RuntimeSupport
from backend_plugin.core.dialects.trainjob import course, environment, folding, manifest, reader, runtimes
from backend_plugin.core.dialects.trainjob.resource import (
    CLUSTER_RUNTIME,
    CONTAINER,
    INITIALIZERS,
    LABELS,
    LAUNCHER,
    LONGEST_NAME,
    LONGEST_NAME_WITH_INITIALIZERS,
    PORT,
    RESOURCE,
    ROLE,
    RUNTIME,
    build_pod_name,
)
from backend_plugin.core.observed import JobLimit
from backend_plugin.core.values import Manifest

_SUSPEND: Final[Manifest] = {"suspend": True}
# The webhooks of Trainer and Kueue read the runtime from caches, which may not contain a new runtime yet.
_MISSING_RUNTIME: Final = re.compile(r"must be created before the TrainJob|runtime '[^']{0,253}' not found")

DIALECT: Final = Dialect(
    resource=RESOURCE,
    number=2,
    operator="Kubeflow Trainer",
    container=CONTAINER,
    port=PORT,
    labels=LABELS,
    longest_name=LONGEST_NAME,
    longest_name_with_initializers=LONGEST_NAME_WITH_INITIALIZERS,
    initializers=INITIALIZERS,
    pod_suffix=rf"-(?:{'|'.join((ROLE, LAUNCHER, *INITIALIZERS.values()))})-0(?:-\d{{1,9}}-[a-z0-9]{{5}})?",
    build_pod_name=build_pod_name,
    fold=folding.fold,
    build=manifest.build,
    build_probe=manifest.build_probe,
    build_prerequisites=manifest.build_runtime,
    prerequisite=RUNTIME,
    runtimes=RuntimeSupport(
        kinds=(RUNTIME, CLUSTER_RUNTIME),
        read=runtimes.read_runtime,
        build_package_job=runtimes.build_package_job,
        check_reference=runtimes.check_reference,
    ),
    is_premature=lambda message: bool(_MISSING_RUNTIME.search(message)),
    read=reader.read_job,
    fields=reader.JobFields,
    read_without_pods=reader.read_without_pods,
    is_suspended=reader.is_suspended,
    interpret=course.interpret,
    # A deadline would delete the JobSet with its logs, and Trainer would create it again.
    end_spec=_SUSPEND,
    suspend_spec=_SUSPEND,
    build_stop_spec=course.build_stop_spec,
    limits={"deadline": JobLimit.DEADLINE},
    required_groups=("jobset.x-k8s.io",),
    deployments=(
        {"fieldSelector": "metadata.name=kubeflow-trainer-controller-manager"},
        {"labelSelector": "app.kubernetes.io/name=kubeflow-trainer"},
    ),
    installation="kubectl apply --server-side -k "
    '"github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0"',
    event_kinds=("JobSet", "Job"),
    creation_failures=(
        "TrainJobResourcesCreationFailed",
        "JobCreationFailed",
        "FailedCreate",
        "PVCCreationFailed",
    ),
    end_events={"AllJobsCompleted": job_conditions.SUCCEEDED, "JobSetFailed": job_conditions.FAILED},
    check_container=environment.check_container,
    keeps_start=False,
    creates_pod_groups=False,
)
