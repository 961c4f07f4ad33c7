"""Tasks for a burn-in, with one replica per Kubernetes node so that measurements use the pod network."""

import sys

from flytekit import PodTemplate, Resources, task
from kubernetes.client import V1Container, V1LabelSelector, V1LabelSelectorRequirement, V1PodSpec
from kubernetes.client import V1TopologySpreadConstraint as Spread

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker

_REPLICA = V1LabelSelectorRequirement(key="training.kubeflow.org/replica-index", operator="Exists")
_APART = PodTemplate(
    primary_container_name="pytorch",
    pod_spec=V1PodSpec(
        containers=[V1Container(name="pytorch")],
        topology_spread_constraints=[
            Spread(
                max_skew=1,
                topology_key="kubernetes.io/hostname",
                when_unsatisfiable="DoNotSchedule",
                label_selector=V1LabelSelector(match_expressions=[_REPLICA]),
                match_label_keys=["training.kubeflow.org/job-name"],
            )
        ],
    ),
)
PAIR = PyTorch(worker=Worker(replicas=1))
SMALL = Resources(cpu="1", mem="1Gi")


@task(task_config=PAIR, requests=SMALL, pod_template=_APART)
def pair() -> None:
    """A job with a master and a worker."""


@task(
    task_config=Elastic(nnodes=2, nproc_per_node=2),
    requests=Resources(cpu="1", mem="2Gi"),
    pod_template=_APART,
)
def elastic() -> None:
    """A job with two torch nodes of two ranks each."""


# The base interpreter has only its standard library.
@task(task_config=PAIR, requests=SMALL, environment={"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"})
def torchless() -> None:
    """A job whose image has `python` without torch."""
